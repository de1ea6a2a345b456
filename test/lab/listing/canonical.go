package listing

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// past is what depends on the past in lines of some objects, and its
// replacement: indexes of targets, numbers of service ports, ids, groups, sets
// and probabilities of session affinity.
var past = []struct {
	object, text *regexp.Regexp
	with         string
}{
	{regexp.MustCompile(`^map port-targets$`), regexp.MustCompile(`^[0-9a-f]+:[0-9a-f]+ : `), "N : "},
	{regexp.MustCompile(`^chain port-`), regexp.MustCompile(`offset \d+`), "N"},
	{regexp.MustCompile(`-targets$`), regexp.MustCompile(` \. [0-9a-f]{3}:[0-9a-f]+ : `), " . all : "},
	{regexp.MustCompile(`-targets$`), regexp.MustCompile(` \. [0-9a-f]{1,2}:[0-9a-f]+ : `), " . some : "},
	{regexp.MustCompile(`^chain affinity`), regexp.MustCompile(`meta priority set [0-9a-f]+:[0-9a-f]+ `), "id "},
	{regexp.MustCompile(`^chain affinity`), regexp.MustCompile(`numgen random mod \d+ \d+ `), ""},
	{regexp.MustCompile(`^chain affinity`), regexp.MustCompile(`((id )?update @\S+ \{ [^}]* \} )+`), "update "},
	{regexp.MustCompile(``), regexp.MustCompile(`\bport-(external-|local-)?\d+`), "port-${1}N"},
	{regexp.MustCompile(``), affinitySet, "clients-N"},
}

var (
	affinitySet = regexp.MustCompile(`\bclients-\d+`)
	classChain  = regexp.MustCompile(`^([0-9a-f]+:[0-9a-f]+) : goto (\S+)$`)
	balancer    = regexp.MustCompile(`^(balance|external|guarded|(nodeport-)?(local|all)|nodeport)-` +
		`(once-|weighted-|once-weighted-|hash-|port-hash-)?\d+$`)
	client    = regexp.MustCompile(` timeout \w+$`)
	group     = regexp.MustCompile(`\baffinity(-local)?-(?:known|new)\.\d+\.`)
	portChain = regexp.MustCompile(`^(chain port-(?:external-|local-)?)\d+$`)
)

// IsBalancer reports whether a chain is a balancer, of which there is one for
// each number of targets that was used.
func IsBalancer(chain string) bool { return balancer.MatchString(chain) }

// ChainOfClass returns the chain to which the row of a class leads, "" for
// another line.
func ChainOfClass(l Line) string {
	if match := classChain.FindStringSubmatch(l.Text); match != nil && strings.HasSuffix(l.Object, "class-chains") {
		return match[2]
	}
	return ""
}

// usedBalancers returns the families and names of the chains whose class a
// frontend has.
func usedBalancers(lines []Line) map[string]bool {
	classes, used := map[string]bool{}, map[string]bool{}
	for _, l := range lines {
		if strings.HasSuffix(l.Object, "-classes") {
			classes[l.Family+l.Text[strings.LastIndexByte(l.Text, ' ')+1:]] = true
		}
	}
	for _, l := range lines {
		if chain := ChainOfClass(l); chain != "" && classes[l.Family+classChain.FindStringSubmatch(l.Text)[1]] {
			used[l.Family+chain] = true
		}
	}
	return used
}

// Canonical returns the lines without what depends on the past, such as clients
// of session affinity and balancers that no frontend uses, and without
// timeouts, which depend on sysctls of the namespace. All lines are sorted.
func Canonical(lines []Line) (all []string) {
	used := usedBalancers(lines)
	for _, l := range lines {
		chain := cmp.Or(ChainOfClass(l), strings.TrimPrefix(l.Object, "chain "))
		idle := IsBalancer(chain) && !used[l.Family+chain]
		isGroup := group.MatchString(l.Text) || group.MatchString(l.Object) && l.Text == ""
		if idle || isGroup || l.Object == "set reserved-ids" || affinitySet.MatchString(l.Object) ||
			client.MatchString(l.Text) || strings.HasPrefix(l.Text, "policy = ") {
			continue
		}
		for _, one := range past {
			if one.object.MatchString(l.Object) {
				l.Text = one.text.ReplaceAllString(l.Text, one.with)
			}
		}
		l.Object = group.ReplaceAllString(portChain.ReplaceAllString(l.Object, "${1}N"), "affinity$1.")
		all = append(all, l.String())
	}
	slices.Sort(all)
	return all
}
