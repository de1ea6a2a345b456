package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/test/lab"
)

// line is a rule, an element or a property of an object of a table.
type line struct{ object, text string }

func (l line) String() string { return l.object + ": " + l.text }

// list returns the lines of the proxy's tables in a namespace, without counters
// and expiration times.
func list(ctx context.Context, at *lab.Namespace) ([]line, error) {
	var all []line
	for _, family := range []string{"ip", "ip6"} {
		out, err := at.Command(ctx, "nft", "--stateless", "list", "table", family, "kube-proxy").CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("list table %s kube-proxy of %s: %w: %s", family, at.Name, err, out)
		}
		all = append(all, parse(family, string(out))...)
	}
	return all, nil
}

// parse splits a listing into lines. Elements become a line each.
func parse(family, listing string) (all []line) {
	object, elements := family, ""
	for _, text := range strings.Split(listing, "\n") {
		text = strings.TrimSpace(text)
		first, rest, begins := strings.Cut(text, "elements = {")
		switch {
		case begins || elements != "":
			if begins {
				elements, text = first+" ", rest
			}
			content, _, ends := strings.Cut(text, "}")
			elements += content
			if ends {
				for _, element := range strings.Split(elements, ",") {
					all = append(all, line{object, strings.TrimSpace(element)})
				}
				elements = ""
			}
		case strings.HasPrefix(text, "chain ") || strings.HasPrefix(text, "set ") || strings.HasPrefix(text, "map ") ||
			strings.HasPrefix(text, "counter "):
			object = family + " " + strings.TrimSuffix(text, " {")
			all = append(all, line{object, ""})
		case text == "}":
			object = family
		case text != "":
			all = append(all, line{object, text})
		}
	}
	return all
}

var (
	targetIndex = regexp.MustCompile(` \. (\d+) : `)
	affinityID  = regexp.MustCompile(`numgen inc mod 1 offset \d+`)
	probability = regexp.MustCompile(`numgen random mod \d+ \d+ `)
	chainOf     = regexp.MustCompile(`^\S+ chain (.*)$`)
	reference   = regexp.MustCompile(`(?:goto|jump) (\S+)`)
	portChain   = regexp.MustCompile(`\bport-(external-|local-)?\d+`)
	portTarget  = regexp.MustCompile(`^\d+ \. (\d+) : `)
	balancer    = regexp.MustCompile(`^(balance|external|nodeport)-(balance-)?(all-)?\d+$`)
	client      = regexp.MustCompile(` timeout \w+$`)
	affinitySet = regexp.MustCompile(`\bclients-\d+`)
)

// canonical returns the lines without what depends on the past: the order of
// targets, ids, clients and sets of session affinity, numbers of service ports,
// and balancers that nothing refers to. All lines are sorted.
func canonical(lines []line) (all []string) {
	used := map[string]bool{}
	for _, l := range lines {
		family, _, _ := strings.Cut(l.object, " ")
		for _, match := range reference.FindAllStringSubmatch(l.text, -1) {
			used[family+" "+strings.TrimSuffix(match[1], ",")] = true
		}
	}
	for _, l := range lines {
		family, name, _ := strings.Cut(l.object, " ")
		if match := chainOf.FindStringSubmatch(l.object); match != nil && balancer.MatchString(match[1]) &&
			!used[family+" "+match[1]] {
			continue
		}
		if name == "set reserved-affinity-ids" || affinitySet.MatchString(l.object) || client.MatchString(l.text) {
			continue
		}
		text := portChain.ReplaceAllString(l.object+": "+withoutPast(name, l.text), "port-${1}N")
		all = append(all, affinitySet.ReplaceAllString(text, "clients-N"))
	}
	slices.Sort(all)
	return all
}

func withoutPast(object, text string) string {
	switch {
	case object == "map port-endpoints":
		return portTarget.ReplaceAllStringFunc(text, func(key string) string {
			if _, index, _ := strings.Cut(key, " . "); len(index) >= len("16777216 : ") {
				return "N . local : "
			}
			return "N . all : "
		})
	case strings.HasPrefix(object, "chain port-"):
		return affinityID.ReplaceAllString(text, "N")
	case strings.HasSuffix(object, "-endpoints"):
		return targetIndex.ReplaceAllStringFunc(text, func(index string) string {
			if len(index) >= len(" . 65536 : ") {
				return " . all : "
			}
			return " . some : "
		})
	case strings.HasPrefix(object, "chain affinity"):
		return probability.ReplaceAllString(affinityID.ReplaceAllString(text, "id"), "")
	}
	return text
}

// difference describes the lines that one of two sorted lists lacks.
func difference(want, got []string) string {
	const most = 20
	var text []string
	for len(want) > 0 || len(got) > 0 {
		switch {
		case len(got) == 0 || len(want) > 0 && want[0] < got[0]:
			text, want = append(text, "- "+want[0]), want[1:]
		case len(want) == 0 || got[0] < want[0]:
			text, got = append(text, "+ "+got[0]), got[1:]
		default:
			want, got = want[1:], got[1:]
		}
	}
	return strings.Join(text[:min(most, len(text))], "\n")
}
