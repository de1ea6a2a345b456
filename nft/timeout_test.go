package nft_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// retryTable returns a table with timeouts of connection tracking and a chain
// that sets them.
func retryTable(f nft.Family, synSent uint32) *nft.Table {
	short := &nft.CtTimeout{Name: "retry-tcp", Protocol: tcp, Policy: nft.TimeoutPolicy{synSent, 2: 86400}}
	flow := &nft.CtTimeout{Name: "retry-udp", Protocol: udp, Policy: nft.TimeoutPolicy{3}}
	retry := &nft.Chain{Name: "retry", Rules: []nft.Rule{
		nft.NewRule(nft.SetCtTimeout(short), nft.SetCtTimeout(flow), nft.Drop()),
	}}
	return &nft.Table{
		Family: f, Name: "lb", CtTimeouts: []*nft.CtTimeout{short, flow}, Chains: []*nft.Chain{retry},
	}
}

// nft lists objects `ct timeout` and rules that use them, and loads its listing
// and the file of Fprint.
func TestListCtTimeouts(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		table := retryTable(f, 1)
		nstest.Commit(t, c, table)
		listing := list(t)
		const rule = `ct timeout set "retry-tcp" ct timeout set "retry-udp" drop`
		for _, want := range []string{"ct timeout retry-tcp {", rule} {
			if !strings.Contains(listing, want) {
				t.Errorf("got no %q in\n%s", want, listing)
			}
		}
		load(t, listing)
		checkUnchanged(t, listing)
		checkFile(t, listing, table)
	})
}

// The object has the timeouts that were given, and otherwise those of the
// network namespace. It keeps them when it is added again. A batch that deletes
// it, with the rules that refer to it, can add it with others.
func TestCtTimeouts(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		find := func(seconds, others uint32) nft.CtTimeout {
			t.Helper()
			found, err := c.CtTimeouts(&nft.Table{Family: f, Name: "lb"})
			if err != nil || len(found) != 2 {
				t.Fatalf("got %+v, %v", found, err)
			}
			slices.SortFunc(found, func(a, b nft.CtTimeout) int { return strings.Compare(a.Name, b.Name) })
			tcp := retryTable(f, seconds).CtTimeouts[0]
			if !found[0].Matches(tcp) || found[0].Name != tcp.Name || found[0].Policy[1] != others {
				t.Errorf("got %+v, want syn_sent %d, syn_recv %d", found[0], seconds, others)
			}
			if found[0].Matches(retryTable(f, seconds+1).CtTimeouts[0]) || found[1].Matches(tcp) {
				t.Error("got a match of an object with other timeouts, or of another protocol")
			}
			return found[0]
		}
		nstest.Commit(t, c, retryTable(f, 1))
		first := find(1, 60)
		next := retryTable(f, 2)
		nstest.Commit(t, c, &nft.Table{Family: f, Name: "lb", CtTimeouts: next.CtTimeouts})
		if again := find(1, 60); again != first {
			t.Errorf("got %+v, want %+v", again, first)
		}
		b := nft.NewBatch(next)
		b.FlushChain("retry")
		b.DeleteCtTimeout("retry-tcp")
		b.AddCtTimeout(next.CtTimeouts[0])
		b.AddRules(next.Chains[0])
		commit(t, c, b)
		if second := find(2, 60); second.Handle == first.Handle {
			t.Error("the object was not replaced")
		}
	})
}

// The kernel does not delete an object to which rules refer, and nft has no
// syntax for the timeouts of other protocols.
func TestRefusedCtTimeouts(t *testing.T) {
	c := connect(t)
	table := retryTable(nft.IPv4, 1)
	nstest.Commit(t, c, table)
	b := nft.NewBatch(table)
	b.DeleteCtTimeout("retry-tcp")
	if got := refused(t, c.Commit(b))[0].String(); got != "delete ct timeout retry-tcp: device or resource busy" {
		t.Errorf("got %s", got)
	}
	b.Reset()
	b.AddCtTimeout(&nft.CtTimeout{Name: "retry-sctp", Protocol: 132})
	const want = "add ct timeout retry-sctp: invalid argument: protocol 132 is not supported"
	if got := refused(t, c.Commit(b))[0].String(); got != want {
		t.Errorf("got %s", got)
	}
}
