package history

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func change(namespace, name string, after time.Duration) *Entry {
	return &Entry{
		Time: start.Add(after), Family: nft.IPv4, Kind: Change, Cause: ByChange, Protocol: cluster.TCP,
		Service: cluster.ServiceName{Namespace: namespace, Name: name}, Settings: []string{"weights"},
	}
}

// The entries of a query are sorted, changes within a minute are one, and a
// namespace with many changes does not displace those of others.
func TestEntries(t *testing.T) {
	l := New()
	l.Record(change("shop", "web", 0))
	l.Record(change("shop", "api", time.Second))
	for second := range 90 {
		l.Record(change("shop", "web", time.Duration(second)*time.Second))
	}
	for i := range 3 * maxEntries {
		l.Record(change("noise", fmt.Sprint(i), 2*time.Minute+time.Duration(i)))
	}
	at := start.Add(3 * time.Minute)
	l.Record(&Entry{Time: at, Family: nft.IPv4, Kind: Repair, Cause: ByDamage, Reason: "damage"})
	l.Blame(nft.IPv6, "other (process 1)")
	l.Blame(nft.IPv4, "nft (process 4711)")
	l.Blame(nft.IPv4, "nft (process 4711)")
	for _, tt := range []struct {
		query Query
		want  string
	}{
		{Query{ServiceName: cluster.ServiceName{Namespace: "shop"}}, `
0s shop/web: changed: weights (61 times in 59s)
1s shop/api: changed: weights
1m0s shop/web: changed: weights (30 times in 29s)`},
		{Query{ServiceName: cluster.ServiceName{Namespace: "shop", Name: "api"}}, "\n1s shop/api: changed: weights"},
		{Query{Since: time.Minute + 31*time.Second, ServiceName: cluster.ServiceName{Namespace: "shop"}}, `
1m0s shop/web: changed: weights (30 times in 29s)`},
		{Query{Since: 30 * time.Second}, `
3m0s table: repaired what was damaged: damage; these processes change tables: nft (process 4711)`},
		{Query{ServiceName: cluster.ServiceName{Namespace: "none"}}, ""},
	} {
		got := ""
		for _, e := range l.Entries(tt.query, start.Add(3*time.Minute)) {
			got += fmt.Sprintf("\n%v %s: %s", e.Time.Sub(start), e.Subject(), e.Text())
		}
		if got != tt.want {
			t.Errorf("%+v: got%s\nwant%s", tt.query, got, tt.want)
		}
	}
	if all := l.Entries(Query{}, start.Add(3*time.Minute)); len(all) != maxEntries {
		t.Errorf("got %d entries, want %d", len(all), maxEntries)
	}
}

// The largest entries, of bursts of changes, have at most 4 MB. What is left
// out is counted.
func TestSize(t *testing.T) {
	l := New()
	before := heap()
	for i := range 2 * maxEntries {
		for burst := range 5 {
			e := change(fmt.Sprintf("%063d", i), strings.Repeat("x", 63), 0)
			e.Port, e.Reason = strings.Repeat("p", 63), strings.Repeat("reason", 1000)
			for n := range 1000 {
				addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(burst), byte(n >> 8), byte(n)}), 8080)
				e.Endpoints.Added = append(e.Endpoints.Added, addr)
				e.Endpoints.Removed = append(e.Endpoints.Removed, addr)
				if n < 100 {
					text := fmt.Sprintf("[2001:db8::%d:1111:2222:%d]:65535/sctp", burst, n)
					e.Frontends.Added = append(e.Frontends.Added, text)
				}
			}
			l.Record(e)
		}
		l.Blame(nft.IPv4, "program (process 1)")
	}
	if used := heap() - before; used > maxBytes {
		t.Errorf("got %d bytes, want at most %d", used, maxBytes)
	}
	e := l.Entries(Query{}, start)[0]
	if d := e.Endpoints; len(d.Added) != maxListed || d.More != 2*(5*1000-maxListed) || e.Count != 5 {
		t.Errorf("got %d of %d changes, and %d more", len(d.Added), e.Count, d.More)
	}
	if len(l.last) > maxEntries {
		t.Errorf("got %d keys, want at most %d", len(l.last), maxEntries)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
