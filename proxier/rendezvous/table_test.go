package rendezvous

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// random returns n endpoints with random addresses and weight 1.
func random(rng *rand.Rand, n int) []Endpoint {
	seen := make(map[netip.Addr]bool)
	var out []Endpoint
	for len(out) < n {
		ip := netip.AddrFrom4([4]byte{10, byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())})
		if !seen[ip] {
			seen[ip] = true
			out = append(out, Endpoint{netip.AddrPortFrom(ip, 8080), 1})
		}
	}
	slices.SortFunc(out, func(a, b Endpoint) int { return a.Compare(b.AddrPort) })
	return out
}

// owners returns the endpoint of each row.
func owners(endpoints []Endpoint, rows int) []netip.AddrPort {
	var out []netip.AddrPort
	for _, i := range Table(endpoints, rows) {
		out = append(out, endpoints[i].AddrPort)
	}
	return out
}

// rowsOf returns the number of rows of each endpoint.
func rowsOf(endpoints []Endpoint, rows int) []int {
	out := make([]int, len(endpoints))
	for _, i := range Table(endpoints, rows) {
		out[i]++
	}
	return out
}

func differences(a, b []netip.AddrPort) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// If an endpoint is removed or added, at most 1.5/N of the rows change on
// average. All shares are near the due ones.
func TestFewRowsMove(t *testing.T) {
	for _, tt := range []struct{ endpoints, rows int }{
		{2, 251}, {10, 251}, {20, 251}, {25, 251}, {50, 503}, {50, 512}, {100, 1009}, {100, 1024},
		{200, 2003}, {200, 2048},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(tt.rows)))
			moved, trials := 0, 0
			for range 8 {
				all := random(rng, tt.endpoints+1)
				before := owners(all, tt.rows)
				for range min(len(all), 12) {
					i := rng.IntN(len(all))
					without := slices.Delete(slices.Clone(all), i, i+1)
					moved += differences(before, owners(without, tt.rows))
					trials++
					expectShares(t, without, tt.rows)
				}
			}
			mean := float64(moved) / float64(trials*tt.rows) * float64(tt.endpoints+1)
			t.Logf("%.2f/N of the rows change", mean)
			if mean > 1.5 {
				t.Errorf("got a change of %.2f/N of the rows, want at most 1.5/N", mean)
			}
		})
	}
}

// expectShares checks that each endpoint has a row, and at most 1.3 times its
// due share.
func expectShares(t *testing.T, endpoints []Endpoint, rows int) {
	t.Helper()
	counts := rowsOf(endpoints, rows)
	if least := slices.Min(counts); least == 0 {
		t.Error("got an endpoint without a row")
	}
	if share := float64(slices.Max(counts)*len(endpoints)) / float64(rows); share > 1.3 {
		t.Errorf("got an endpoint with %.3f times its due share, want at most 1.3", share)
	}
}

// The table depends neither on the weights, if they are equal, nor on their
// order of magnitude.
func TestEqualWeights(t *testing.T) {
	endpoints := random(rand.New(rand.NewPCG(2, 2)), 20)
	want := Table(endpoints, 251)
	for _, weight := range []int{3, 50, 100} {
		for i := range endpoints {
			endpoints[i].Weight = weight
		}
		if got := Table(endpoints, 251); !slices.Equal(got, want) {
			t.Errorf("weight %d: got another table than with weight 1", weight)
		}
	}
}

// A canary with a weight of 5 % of the sum gets 5 % of the rows.
func TestCanary(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, tt := range []struct{ stable, stableWeight, canaries, canaryWeight int }{
		{1, 95, 1, 5}, {1, 19, 1, 1}, {10, 19, 1, 10}, {10, 38, 10, 2}, {3, 95, 5, 3},
	} {
		for range 50 {
			endpoints := random(rng, tt.stable+tt.canaries)
			for i, at := range rng.Perm(len(endpoints)) {
				endpoints[at].Weight = tt.stableWeight
				if i < tt.canaries {
					endpoints[at].Weight = tt.canaryWeight
				}
			}
			rows, canary := rowsOf(endpoints, 251), 0
			for i, e := range endpoints {
				if e.Weight == tt.canaryWeight {
					canary += rows[i]
				}
			}
			if share := float64(canary) / 251; math.Abs(share-0.05) > 0.005 {
				t.Errorf("%+v: got a share of %.4f, want 0.05", tt, share)
			}
		}
	}
}

// An endpoint with a low weight has a row, one with weight 0 has none.
func TestExtremeWeights(t *testing.T) {
	endpoints := random(rand.New(rand.NewPCG(4, 4)), 101)
	for i := range endpoints {
		endpoints[i].Weight = i
	}
	for _, size := range []int{101, 251, 65536} {
		rows := rowsOf(endpoints, size)
		if rows[0] != 0 || slices.Min(rows[1:]) == 0 {
			t.Errorf("size %d: got rows %v, want none for the first endpoint only", size, rows)
		}
	}
	for i := range endpoints {
		endpoints[i].Weight = 0
	}
	if got := Table(endpoints, 251); len(got) != 0 {
		t.Errorf("no weights: got %d rows, want none", len(got))
	}
	if got := Table(nil, 251); len(got) != 0 {
		t.Errorf("no endpoints: got %d rows, want none", len(got))
	}
}

// A change of a weight moves about the rows that change their owner's share.
func TestChangeOfWeight(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	moved := 0
	for range 40 {
		endpoints := random(rng, 11)
		for i := range endpoints {
			endpoints[i].Weight = 50
		}
		endpoints[3].Weight = 25 // 4.8 %
		before := owners(endpoints, 251)
		endpoints[3].Weight = 50 // 9.1 %
		moved += differences(before, owners(endpoints, 251))
	}
	mean := float64(moved) / 40 / 251
	t.Logf("%.3f of the rows move", mean)
	if mean > 2*(0.091-0.048) {
		t.Errorf("got %.3f of the rows, want at most twice the difference of the shares", mean)
	}
}

// A table with more endpoints than rows grows, and each endpoint has a row.
func TestMoreEndpointsThanRows(t *testing.T) {
	for _, tt := range []struct{ endpoints, rows, want int }{
		{251, 251, 251}, {252, 251, 2510}, {2510, 251, 2510}, {2511, 251, 25100}, {30000, 251, 65536}, {0, 251, 251},
	} {
		if got := Size(tt.endpoints, tt.rows); got != tt.want {
			t.Errorf("%+v: got size %d", tt, got)
		}
		if tt.endpoints == 0 {
			continue
		}
		endpoints := random(rand.New(rand.NewPCG(6, 6)), tt.endpoints)
		if rows := rowsOf(endpoints, tt.rows); slices.Min(rows) == 0 {
			t.Errorf("%+v: got an endpoint without a row", tt)
		}
	}
}

// The port of an endpoint matters only if its address is not unique.
func TestPorts(t *testing.T) {
	endpoints := random(rand.New(rand.NewPCG(7, 7)), 10)
	want := Table(endpoints, 251)
	for i := range endpoints {
		endpoints[i].AddrPort = netip.AddrPortFrom(endpoints[i].Addr(), 9090)
	}
	if !slices.Equal(Table(endpoints, 251), want) {
		t.Error("got another table for another port")
	}
	twice := slices.Insert(slices.Clone(endpoints), 4, Endpoint{netip.AddrPortFrom(endpoints[4].Addr(), 80), 1})
	rows := rowsOf(twice, 251)
	if rows[4] < 10 || rows[5] < 10 {
		t.Errorf("got %d and %d rows for two ports of an address, want about 23", rows[4], rows[5])
	}
}

// The tables of all versions must be the same: with few endpoints, and with
// many, which ask for the same rows.
func TestStableAcrossVersions(t *testing.T) {
	var few []Endpoint
	for _, ip := range []string{"10.244.1.5", "10.244.2.5", "10.244.3.5", "fd00::5", "fd00::6"} {
		few = append(few, Endpoint{netip.AddrPortFrom(netip.MustParseAddr(ip), 8080), len(few)*3 + 1})
	}
	for want, endpoints := range map[string][]Endpoint{
		"de458fb03410c832": few, "fa1bf8ab4349be11": random(rand.New(rand.NewPCG(8, 8)), 200),
	} {
		hash := fnv.New64a()
		for _, i := range Table(endpoints, 251) {
			hash.Write([]byte{byte(i)})
		}
		if got := fmt.Sprintf("%x", hash.Sum64()); got != want {
			t.Errorf("%d endpoints: got a table with hash %s", len(endpoints), got)
		}
	}
}
