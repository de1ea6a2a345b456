package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/test/lab/listing"
)

// past is what depends on the past in lines of some objects, and its
// replacement: indexes of targets, numbers of service ports, ids, sets and
// probabilities of session affinity.
var past = []struct {
	object, text *regexp.Regexp
	with         string
}{
	{regexp.MustCompile(`^map port-endpoints$`), regexp.MustCompile(`^\d+ \. \d{8,} : `), "N . local : "},
	{regexp.MustCompile(`^map port-endpoints$`), regexp.MustCompile(`^\d+ \. \d+ : `), "N . all : "},
	{regexp.MustCompile(`^chain port-`), affinityID, "N"},
	{regexp.MustCompile(`-endpoints$`), regexp.MustCompile(` \. \d{5,} : `), " . all : "},
	{regexp.MustCompile(`-endpoints$`), regexp.MustCompile(` \. \d+ : `), " . some : "},
	{regexp.MustCompile(`^chain affinity`), affinityID, "id"},
	{regexp.MustCompile(`^chain affinity`), regexp.MustCompile(`numgen random mod \d+ \d+ `), ""},
	{regexp.MustCompile(``), regexp.MustCompile(`\bport-(external-|local-)?\d+`), "port-${1}N"},
	{regexp.MustCompile(``), affinitySet, "clients-N"},
}

var (
	affinityID  = regexp.MustCompile(`numgen inc mod 1 offset \d+`)
	affinitySet = regexp.MustCompile(`\bclients-\d+`)
	reference   = regexp.MustCompile(`(?:goto|jump) (\S+)`)
	balancer    = regexp.MustCompile(`^(balance|external|nodeport)-(balance-)?(all-)?\d+$`)
	client      = regexp.MustCompile(` timeout \w+$`)
	portChain   = regexp.MustCompile(`^(chain port-(?:external-|local-)?)\d+$`)
)

// canonical returns the lines without what depends on the past, such as clients
// of session affinity and balancers that nothing refers to. All lines are
// sorted.
func canonical(lines []listing.Line) (all []string) {
	used := map[string]bool{}
	for _, l := range lines {
		for _, match := range reference.FindAllStringSubmatch(l.Text, -1) {
			used[l.Family+" chain "+strings.TrimSuffix(match[1], ",")] = true
		}
	}
	for _, l := range lines {
		chain, isChain := strings.CutPrefix(l.Object, "chain ")
		idle := isChain && balancer.MatchString(chain) && !used[l.Family+" "+l.Object]
		if idle || l.Object == "set reserved-affinity-ids" || affinitySet.MatchString(l.Object) ||
			client.MatchString(l.Text) {
			continue
		}
		for _, one := range past {
			if one.object.MatchString(l.Object) {
				l.Text = one.text.ReplaceAllString(l.Text, one.with)
			}
		}
		l.Object = portChain.ReplaceAllString(l.Object, "${1}N")
		all = append(all, l.String())
	}
	slices.Sort(all)
	return all
}
