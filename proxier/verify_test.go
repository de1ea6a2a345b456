package proxier

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

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

// check calls Check.
func check(t testing.TB, b *Backend) {
	t.Helper()
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
}

// scrubAll calls Check until all rows are scrubbed.
func scrubAll(t testing.TB, b *Backend) {
	t.Helper()
	for range 1_000_000 {
		b.scrubber.rest, b.repairs.pause = time.Time{}, 0
		check(t, b)
		if b.scrubber.queue == nil && b.scrubber.done == b.generation.foreign {
			return
		}
	}
	t.Fatal("the scrubber does not end")
}

// counting is whether the kernel reports the numbers of rows.
func counting(t testing.TB, b *Backend) bool {
	t.Helper()
	sets, err := b.kernel.Sets(b.have.table)
	if err != nil || len(sets) == 0 {
		t.Fatalf("sets %v, %v", sets, err)
	}
	return sets[0].Count >= 0
}

// A change to the table by another program is detected by the next Check, or, if
// it is one of single rows or of the chains of session affinity, by the scrubber.
// The repair writes as little as it can, and is counted by the kind of damage.
func TestTampering(t *testing.T) {
	const (
		byCheck = iota
		byCount // where the kernel reports the number of rows, else by the scrubber
		byScrub
	)
	sticky := "ip kube-proxy affinity.default.sticky.tcp.http"
	for name, tt := range map[string]struct {
		commands string
		kind     damageKind
		by       int
		rewrites int // that are needed to repair it
	}{
		"flush ruleset":       {"flush ruleset", damagedTable, byCheck, 1},
		"delete table":        {"delete table ip kube-proxy", damagedTable, byCheck, 1},
		"another table":       {"delete table ip kube-proxy; add table ip kube-proxy", damagedTable, byCheck, 1},
		"dormant table":       {"add table ip kube-proxy { flags dormant; }", damagedTable, byCheck, 1},
		"flush a chain":       {"flush chain ip kube-proxy services", damagedRule, byCheck, 1},
		"flush nodeports":     {"flush chain ip kube-proxy nodeports", damagedRule, byCheck, 1},
		"delete a base chain": {"delete chain ip kube-proxy nat-output", damagedChain, byCheck, 1},
		"policy of a chain":   {"add chain ip kube-proxy nat-output { policy drop; }", damagedChain, byCheck, 1},
		"insert a rule":       {"insert rule ip kube-proxy services accept", damagedRule, byCheck, 1},
		"flush a balancer":    {"flush chain ip kube-proxy balance-2", damagedRule, byCheck, 1},
		"replace a set": {"flush chain ip kube-proxy external-local; flush chain ip kube-proxy services; delete set ip kube-proxy local-ips; " +
			"add set ip kube-proxy local-ips { type ipv4_addr . inet_proto . inet_service; }", damagedSet, byCheck, 1},
		"flush a map":       {"flush map ip kube-proxy service-ips", damagedRows, byCheck, 1},
		"flush endpoints":   {"flush map ip kube-proxy service-endpoints", damagedRows, byCheck, 1},
		"flush a set":       {"flush set ip kube-proxy local-ips", damagedRows, byCheck, 1},
		"flush sources":     {"flush set ip kube-proxy firewall-sources-tcp", damagedRows, byCheck, 1},
		"delete a row":      {"delete element ip kube-proxy service-endpoints { 10.96.0.10 . tcp . 80 . 1 }", damagedRows, byCount, 1},
		"add a row":         {"add element ip kube-proxy cluster-ips { 10.96.7.7 }", damagedRows, byCount, 1},
		"change a row":      {"delete element ip kube-proxy service-endpoints { 10.96.0.10 . tcp . 80 . 1 }; add element ip kube-proxy service-endpoints { 10.96.0.10 . tcp . 80 . 1 : 10.9.9.9 . 1 }", damagedRow, byScrub, 0},
		"change a verdict":  {"delete element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 }; add element ip kube-proxy service-ips { 10.96.0.10 . tcp . 80 : drop }", damagedRow, byScrub, 0},
		"flush affinity":    {"flush chain " + sticky, damagedAffinity, byScrub, 0},
		"rule for affinity": {"insert rule " + sticky + " accept", damagedAffinity, byScrub, 0},
	} {
		t.Run(name, func(t *testing.T) {
			newNamespace(t)
			b := newBackend(t, sampleConfig(), nft.IPv4)
			tellSample(b)
			mustSync(t, b)
			if tt.by == byCount {
				if !counting(t, b) && name == "add a row" {
					return // nothing shows such a row
				}
				if !counting(t, b) {
					tt.by, tt.kind, tt.rewrites = byScrub, damagedRow, 0
				}
			}
			clear(b.have.samples) // those that are found instead are good too
			runNFT(t, strings.ReplaceAll(tt.commands, "; ", "\n"), "-f", "-")
			before := b.stats.Rewrites
			if tt.by == byScrub {
				scrubAll(t, b)
			} else {
				check(t, b)
			}
			checkTable(t, b)
			if n := b.stats.Rewrites - before; n != tt.rewrites && tt.kind != damagedRow {
				t.Errorf("%d rewrites, want %d", n, tt.rewrites)
			}
			for _, kind := range damageKinds {
				want := 0
				if kind == tt.kind {
					want = 1
				}
				if kind == damagedRows && tt.kind == damagedRow {
					continue // a changed row can be one of the samples
				}
				if got := b.repairs.count[kind]; got != want && tt.kind != damagedRow {
					t.Errorf("%d repairs of kind %s, want %d", got, kind, want)
				}
			}
			if b.Stats().Repairs != 1 {
				t.Errorf("%d repairs, want 1", b.Stats().Repairs)
			}
			check(t, b)
			scrubAll(t, b)
			if b.Stats().Repairs != 1 {
				t.Error("the repaired table was repaired again")
			}
		})
	}
}

// Many single rows that are wrong are repaired by writing everything.
func TestScrubManyRows(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(b)
	svc := simpleService("large", "10.96.0.99", nil)
	b.SetService(svc)
	const endpoints = 2 * scrubRows
	for i := range endpoints {
		b.SetEndpoint(svc.Name, simpleEndpoint(fmt.Sprintf("10.244.%d.%d", 10+i/100, i%100)))
	}
	mustSync(t, b)
	var commands strings.Builder
	for i := range endpoints {
		key := fmt.Sprintf("10.96.0.99 . tcp . 80 . %d", i)
		fmt.Fprintf(&commands, "delete element ip kube-proxy service-endpoints { %s }\n", key)
		fmt.Fprintf(&commands, "add element ip kube-proxy service-endpoints { %s : 10.9.9.9 . 1 }\n", key)
	}
	runNFT(t, commands.String(), "-f", "-")
	now, err := b.kernel.Generation()
	if err != nil {
		t.Fatal(err)
	}
	b.generation.found(now)
	b.verified = b.generation.foreign // as if no sample was among them
	rewrites := b.stats.Rewrites
	scrubAll(t, b)
	checkTable(t, b)
	if n := b.stats.Rewrites - rewrites; n != 1 {
		t.Errorf("%d rewrites, want 1", n)
	}
}

// Commits of other programs that leave the table alone make nothing be written.
func TestForeignCommits(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(b)
	mustSync(t, b)
	transactions := b.stats.Transactions
	for range 20 {
		runNFT(t, "add table ip other; add chain ip other c; delete table ip other", "-f", "-")
		check(t, b)
		if err := b.Resync(); err != nil {
			t.Fatal(err)
		}
	}
	scrubAll(t, b)
	if n := b.stats.Transactions - transactions; n != 0 {
		t.Errorf("%d transactions, want none", n)
	}
	if b.scrubber.done == 0 {
		t.Error("the rows were not scrubbed")
	}
}

// The first repair is at once; those of a table that another program changes again
// and again wait longer and longer, up to a limit, until it is left alone.
func TestRepairsBackOff(t *testing.T) {
	r := repairs{count: make(map[damageKind]int)}
	now := time.Unix(1000, 0)
	foreign := 1
	if r.wait(now) != 0 || r.add(damagedTable, now, foreign) {
		t.Error("the first repair waits, or follows others")
	}
	for i, want := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, lastPause, lastPause} {
		now = now.Add(r.wait(now) + 50*time.Millisecond)
		foreign++
		if !r.add(damagedTable, now, foreign) {
			t.Errorf("repair %d does not follow others", i)
		}
		if got := r.wait(now); got != want {
			t.Errorf("repair %d: wait %v, want %v", i, got, want)
		}
	}
	if r.add(damagedRow, now, foreign) {
		t.Error("a repair of the same commit is a fight")
	}
	r.pause = lastPause
	now = now.Add(lastPause + calmTime)
	foreign++
	if r.add(damagedTable, now, foreign) || r.wait(now) != 0 {
		t.Error("a repair after a calm time follows others")
	}
}

// Another program that keeps changing the table is answered ever less often, and
// the log names it.
func TestFight(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(b)
	mustSync(t, b)
	flush := func() { runNFT(t, "", "flush", "chain", "ip", TableName, chainServices) }
	end := time.Now().Add(2 * time.Second)
	flushes := 0
	for time.Now().Before(end) {
		flush()
		flushes++
		check(t, b)
		var tampered *damage
		b.SetService(simpleService("svc", fmt.Sprintf("10.96.0.%d", 100+flushes%100), nil))
		if err := b.Sync(); err != nil && !errors.As(err, &tampered) {
			t.Fatal(err)
		}
	}
	if n := b.Stats().Repairs; n > 5 || n < 2 {
		t.Errorf("%d repairs after %d changes in 2 s, want 2 to 5", n, flushes)
	}
	time.Sleep(b.repairs.wait(time.Now()))
	mustSync(t, b)
	check(t, b)
	checkTable(t, b)

	monitor, err := nft.OpenMonitor()
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	done := make(chan []nft.Committer)
	go func() {
		found, err := monitor.Listen(time.Second)
		if err != nil {
			t.Error(err)
		}
		done <- found
	}()
	time.Sleep(100 * time.Millisecond)
	flush()
	mustSync(t, b)
	found := <-done
	if len(found) != 1 || found[0].Name != "nft" || found[0].PID == 0 || b.generation.ours[found[0].Port] {
		t.Errorf("heard of %+v, want one process nft", found)
	}
}

// A failed rewrite changes nothing of what is known of the kernel: metrics show
// the rows that it has. Ids that were given for it are used again.
func TestFailedRewrite(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(b)
	mustSync(t, b)
	rows := maps.Clone(b.have.rows)
	if rows["service-ips"] == 0 {
		t.Fatalf("rows %v", rows)
	}
	svc := simpleService("late", "10.96.0.99", func(s *Service) { s.AffinityTimeout = time.Hour })
	b.SetService(svc)
	b.SetEndpoint(svc.Name, simpleEndpoint("10.244.0.99"))
	sound := b.kernel
	b.kernel = failing{sound}
	b.doubt("test")
	next := b.ids.next
	for range 5 {
		if err := b.Sync(); !errors.Is(err, errFailing) {
			t.Fatal(err)
		}
	}
	if !maps.Equal(b.have.rows, rows) {
		t.Errorf("rows are %v after a failed rewrite, want %v", b.have.rows, rows)
	}
	if used := b.ids.next - next; used != 1 {
		t.Errorf("failed rewrites used %d ids, want 1", used)
	}
	b.kernel = sound
	mustSync(t, b)
	checkTable(t, b)
	if id := b.services[svc.Name].ports[0].committed.cluster[0].id; id != next {
		t.Errorf("id %d, want %d", id, next)
	}
}

// unreadable refuses to read chains or rules.
type unreadable struct {
	kernel
	chains, rules error
}

func (k unreadable) Chains(t *nft.Table) ([]nft.FoundChain, error) {
	if k.chains != nil {
		return nil, k.chains
	}
	return k.kernel.Chains(t)
}

func (k unreadable) Rules(t *nft.Table, chain string) ([]nft.FoundRule, error) {
	if k.rules != nil && strings.HasPrefix(chain, affinityPrefix) {
		return nil, k.rules
	}
	return k.kernel.Rules(t, chain)
}

// If the ids of an earlier process cannot be read, the proxy starts without them,
// and gives no id again.
func TestUnreadableAffinity(t *testing.T) {
	newNamespace(t)
	first := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(first)
	mustSync(t, first)
	for name, k := range map[string]unreadable{"chains": {chains: nft.ErrGeneration}, "rules": {rules: nft.ErrGeneration}} {
		b, err := NewBackend(sampleConfig(), nft.IPv4)
		if err != nil {
			t.Fatal(err)
		}
		k.kernel = first.kernel
		b.kernel = k
		b.recoverAffinity()
		b.kernel = first.kernel
		tellSample(b)
		mustSync(t, b)
		checkTable(t, b)
		for _, target := range b.services[ServiceName{"default", "sticky"}].ports[0].committed.cluster {
			if target.id < idBlock {
				t.Errorf("%s: %s has id %d, which was given before", name, target.AddrPort, target.id)
			}
		}
	}
}
