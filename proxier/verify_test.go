package proxier

import (
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// The backends of a Proxier do not take each other for other programs, and both
// detect one.
func TestFamiliesAreNotForeign(t *testing.T) {
	newNamespace(t)
	p, err := newProxier(*sampleConfig(), nft.IPv4, nft.IPv6)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	tellSample(p.sink)
	mustSync(t, p.sink)
	change := func() {
		t.Helper()
		svc := simpleService("more", "10.96.0.99", func(s *Service) {
			s.Families = append(s.Families, nft.IPv6)
			s.ClusterIPs = append(s.ClusterIPs, addr("fd00:96::99"))
		})
		p.sink.SetService(svc)
		mustSync(t, p.sink)
		p.sink.DeleteService(svc.Name)
		mustSync(t, p.sink)
		for _, f := range []func(*Backend) error{(*Backend).Check, (*Backend).Resync} {
			if err := p.eachBackend(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	rewrites := func(want int) {
		t.Helper()
		for _, b := range p.backends {
			if b.stats.Rewrites != want {
				t.Errorf("%s: %d rewrites, want %d", b.layout.family, b.stats.Rewrites, want)
			}
		}
	}
	change()
	change()
	rewrites(1)
	runNFT(t, "add table ip other", "-f", "-")
	change() // which is no damage
	rewrites(1)
	runNFT(t, "flush ruleset", "-f", "-")
	if err := p.eachBackend((*Backend).Check); err != nil {
		t.Fatal(err)
	}
	rewrites(2)
	for _, b := range p.backends {
		checkTable(t, b)
	}
}
