package follow

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/history"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// planOf returns the plan of a service port with endpoints, or nil for none. A
// word is a number of an endpoint, or several such as 1..9, with "w" for
// another weight, "x" for ejected ones, "t" for those on trial, or "u" for
// those that are ejected because they are unhealthy. Or it is open, if too many
// are ejected, none-healthy, checked, for health checks, sticky, for session
// affinity, or slots=N.
func planOf(words string) *ruleset.Plan {
	if words == "none" {
		return nil
	}
	p := &ruleset.Plan{Service: &cluster.Service{Name: cluster.ServiceName{Namespace: "ns", Name: "svc"}}}
	for word := range strings.FieldsSeq(words) {
		slots, hasSlots := strings.CutPrefix(word, "slots=")
		switch {
		case word == "open":
			p.Ejected = &ruleset.Ejected{Open: true}
		case word == "none-healthy":
			p.Ejected = &ruleset.Ejected{NoneHealthy: true}
		case word == "checked":
			p.Service.HealthCheck = new(cluster.HealthCheck)
		case word == "sticky":
			p.Service.AffinityTimeout = time.Hour
		case hasSlots:
			n, _ := strconv.Atoi(slots)
			p.ClusterSlots = make([]uint16, n)
		default:
			addEndpoints(p, word)
		}
	}
	return p
}

// addEndpoints adds the endpoints of a word.
func addEndpoints(p *ruleset.Plan, word string) {
	from, to, _ := strings.Cut(strings.TrimRight(word, "tuwx"), "..")
	first, _ := strconv.Atoi(from)
	last, _ := strconv.Atoi(cmp.Or(to, from))
	for n := first; n <= last; n++ {
		t := ruleset.Target{Addr: netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), Port: 80}
		switch {
		case !strings.HasSuffix(word, "x") && !strings.HasSuffix(word, "u"):
			if strings.HasSuffix(word, "w") {
				t.Weight = cluster.WeightOf(5)
			}
			if p.Cluster = append(p.Cluster, t); strings.HasSuffix(word, "t") {
				p.Ejected = &ruleset.Ejected{OnTrial: []netip.AddrPort{t.AddrPort()}}
			}
			continue
		case p.Ejected == nil:
			p.Ejected = new(ruleset.Ejected)
		}
		e := cluster.Ejection{Endpoint: t.AddrPort(), Attempts: 3, Clients: 2, Probes: 2}
		if strings.HasSuffix(word, "u") {
			e = cluster.Ejection{Endpoint: t.AddrPort(), Checks: 3, Reply: "RST"}
		}
		p.Ejected.Cluster = append(p.Ejected.Cluster, e)
	}
}

// The entry of a change has what came and went.
func TestCompare(t *testing.T) {
	const why = ": 3 attempts of 2 clients unanswered, 2 probes lost"
	for _, tt := range []struct {
		before, after string
		want          string // "" for no entry
		cause         history.Cause
	}{
		{"1 2 3", "1 2 3", "", ""},
		{"none", "none", "", ""},
		{"1 2 3", "3 1 2", "", ""}, // the order is of no interest
		{"1 2 3", "1 4 3", "endpoints +10.0.0.4:80 -10.0.0.2:80 (3 now)", ""},
		{"1 2 3", "3 2 4 5", "endpoints +10.0.0.4:80 +10.0.0.5:80 -10.0.0.1:80 (4 now)", ""},
		{"1 2 3", "3", "endpoints -10.0.0.1:80 -10.0.0.2:80 (1 now)", ""},
		{"1 2", "1w 2", "changed: weights", ""},
		{"none", "1 2", "added; endpoints +10.0.0.1:80 +10.0.0.2:80 (2 now)", ""},
		{"1", "none", "removed; endpoints -10.0.0.1:80 (0 now)", ""},
		{"1 2 3", "1 2 3x", "ejected 10.0.0.3:80 (2 left)" + why, history.ByEjection},
		{"1 2 3", "1 2 3u", "ejected 10.0.0.3:80 (2 left): 3 health checks failed, answer to the last one: RST",
			history.ByEjection},
		{"1 2", "checked 1 2", "changed: health check", ""},
		{"checked 1 2", "checked 1 2", "", ""},
		{"1 2 3x", "1 2 3", "used again: 10.0.0.3:80 (3 now)", history.ByEjection},
		{"1 2 3x", "1 2", "endpoints -10.0.0.3:80 (2 now)", ""}, // the API removed it
		{"1 2 3x", "1 2x 4",
			"endpoints +10.0.0.4:80 -10.0.0.3:80 (2 now); ejected 10.0.0.2:80 (2 left)" + why, ""},
	} {
		e := history.Entry{Kind: history.Change}
		got := ""
		if compare(table.PortChange{Before: planOf(tt.before), After: planOf(tt.after)}, &e) {
			got = e.Text()
		}
		if got != tt.want || e.Cause != tt.cause {
			t.Errorf("from %s to %s: got %q by %q, want %q by %q", tt.before, tt.after, got, e.Cause, tt.want, tt.cause)
		}
	}
}

// A change of very many service ports is recorded as such.
func TestManyChanges(t *testing.T) {
	log := history.New()
	h := &changes{log: log}
	h.committed(&table.Commit{Whole: true, Changes: []table.PortChange{{After: planOf("1")}}})
	h.synced(syncResult(true))
	var many []table.PortChange
	for i := range maxChanges + 50 {
		after := planOf("1")
		after.Service.Name.Name = fmt.Sprint("svc", i)
		many = append(many, table.PortChange{After: after})
	}
	h.committed(&table.Commit{Changes: many})
	h.synced(syncResult(false))
	all := log.Entries(history.Query{}, time.Time{})
	const want = "changed service ports, of which not all are listed: 250"
	has := slices.ContainsFunc(all, func(e history.Entry) bool { return e.Text() == want })
	if !has || len(all) != maxChanges+2 {
		t.Errorf("got %d entries, %q is one: %v", len(all), want, has)
	}
}

func syncResult(full bool) keep.SyncResult {
	return keep.SyncResult{Full: full, Rewrite: keep.RewriteStart, Why: "first sync", Cause: keep.CauseChanges}
}
