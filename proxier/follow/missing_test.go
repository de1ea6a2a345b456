package follow

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// manyEndpoints are the terminating endpoints of a Service that comes and goes.
const manyEndpoints = 250

// inStory runs a test with a fake clock, and without a table. The kernel has
// the Services web of two namespaces.
func inStory(t *testing.T, test func(*testing.T, *story)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t)
		s.hold = true
		for _, namespace := range []string{"ns", "other"} {
			s.resets.committed(&table.Commit{Family: nft.IPv4, Changes: []table.PortChange{{After: &ruleset.Plan{
				Service: &cluster.Service{Name: cluster.ServiceName{Namespace: namespace, Name: "web"}},
				Port:    cluster.ServicePort{Name: "http", Protocol: cluster.TCP, Port: 80},
			}}}})
		}
		test(t, s)
	})
}

// flap sets an EndpointSlice with n endpoints, and deletes it.
func (s *story) flap(t *testing.T, namespace string, n int) {
	t.Helper()
	var endpoints []string
	for i := range n {
		endpoints = append(endpoints, netip.AddrFrom4([4]byte{10, 244, 0, byte(i)}).String()+",terminating")
	}
	for _, now := range [][]string{endpoints, nil} {
		slice, err := s.parseSlice("a", "web", now)
		if err != nil {
			t.Fatal(err)
		}
		slice.Name.Namespace, slice.Service.Namespace = namespace, namespace
		s.setSlice("a", slice)
	}
	time.Sleep(time.Second)
	synctest.Wait()
}

// The number of endpoints that are gone is limited, until their connections are
// reset. Further ones are ignored, however often they come and go.
func TestStaleConnectionsLimit(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		const flaps, ports = 100, 4 // only one port of an endpoint has a removal
		for range flaps {
			s.flap(t, "ns", manyEndpoints)
		}
		const most = maxMissing / 2 // of a namespace alone
		got, missing := len(s.held), maxMissing-s.resets.missing.limit.Left()
		if got > most || got <= most-ports || missing != got {
			t.Errorf("got %d removals, %d ports, want %d", got, missing, most)
		}
		ignored := testutil.ToFloat64(s.resets.missing.ignored)
		if want := float64(ports * (manyEndpoints*flaps - got)); ignored != want {
			t.Errorf("got %v endpoints ignored, want %v", ignored, want)
		}
		s.release()
		if n := s.missing(); n != 0 {
			t.Errorf("got %d missing endpoints after the reset of all", n)
		}
		s.flap(t, "ns", 1)
		if want := []string{"protocol 6 10.244.0.0:8080 []"}; !slices.Equal(s.removals, want) {
			t.Errorf("after the reset of all: got %q, want %q", s.removals, want)
		}
	})
}

// While a namespace has more endpoints that are gone than its share, the
// connections of other namespaces are reset.
func TestStaleConnectionsShare(t *testing.T) {
	inStory(t, func(t *testing.T, s *story) {
		for testutil.ToFloat64(s.resets.missing.ignored) == 0 {
			s.flap(t, "ns", manyEndpoints)
		}
		filled := len(s.held)
		s.flap(t, "other", manyEndpoints)
		if got := len(s.held) - filled; got != manyEndpoints {
			t.Errorf("got %d removals of another namespace, want %d", got, manyEndpoints)
		}
	})
}
