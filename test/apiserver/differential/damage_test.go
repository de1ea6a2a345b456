package differential

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/test/lab/listing"
)

// damages are commands of another program, which a proxy repairs. They keep the
// clients of session affinity, whose endpoints are compared. FIRST is the
// handle of the first rule of the chain services.
var damages = []string{
	"replace rule FAMILY kube-proxy services handle FIRST drop",
	"flush map FAMILY kube-proxy service-classes",
	"flush chain FAMILY kube-proxy services",
}

var balancer = regexp.MustCompile(`^chain (balance|external|guarded|nodeport|local|all)[a-z-]*-\d`)

var firstHandle = regexp.MustCompile(`# handle \d+\n[^\n]*# handle (\d+)\n`) // after the one of the chain

// damage damages the table of a family twice, and waits until it is repaired.
func (s *side) damage(ctx context.Context, number int) error {
	family := []string{"ip", "ip6"}[number%2]
	before, err := s.rules(ctx)
	if err != nil {
		return err
	}
	command := damages[number/2%len(damages)]
	for i := range 2 { // the second time, a repair can change the rule
		chain, err := listing.Run(ctx, s.Node1.Namespace, "-a", "list", "chain", family, "kube-proxy", "services")
		if err != nil {
			return err
		}
		first := firstHandle.FindStringSubmatch(chain)
		if first == nil {
			continue
		}
		script := strings.NewReplacer("FAMILY", family, "FIRST", first[1]).Replace(command)
		if _, err := listing.Run(ctx, s.Node1.Namespace, script); err != nil && i == 0 {
			return err
		}
	}
	const patience = 30 * time.Second
	var after []string
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if after, err = s.rules(ctx); err == nil && slices.Equal(before, after) {
			return nil
		}
		if err := s.process.Pause(10 * time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s has not repaired %q of family %s: %v:\n%s", s.proxy, command, family, err,
		listing.Difference(before, after))
}

// rules returns the sorted lines of the tables, without the clients of session
// affinity, and without balancers and their classes, of which a repair keeps
// those that are used.
func (s *side) rules(ctx context.Context) ([]string, error) {
	lines, err := listing.List(ctx, s.Node1.Namespace)
	var texts []string
	for _, l := range lines {
		if !balancer.MatchString(l.Object) && !strings.HasPrefix(l.Object, "set sticky-clients-") &&
			!(l.Element && strings.HasSuffix(l.Object, "class-chains")) {
			texts = append(texts, l.String())
		}
	}
	slices.Sort(texts)
	return texts, err
}
