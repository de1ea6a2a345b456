package packet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// TestDistribution shows that each of N endpoints gets the same share of
// connections.
func TestDistribution(t *testing.T) {
	t.Parallel()
	tests := []struct {
		endpoints, connections int
		// limit is the quantile of chi-squared with endpoints-1 degrees of
		// freedom that equal shares exceed less than once in 10^12 tests.
		limit float64
	}{
		{1, 60, 0},
		{2, 160, 50.8},
		{3, 160, 55.3},
		{7, 280, 68.1},
		{50, 1400, 153.6},
	}
	c := newCluster(t)
	most := slices.MaxFunc(tests, func(a, b struct {
		endpoints, connections int
		limit                  float64
	}) int {
		return a.endpoints - b.endpoints
	}).endpoints
	for i := range most {
		serveNumbered(t, c.pods["a1"], i)
	}
	for i, test := range tests {
		t.Run(fmt.Sprintf("%d endpoints", test.endpoints), func(t *testing.T) {
			s := service{name: "web", spec: "type: NodePort", protocols: "UDP", number: 2 + i}
			for i := range test.endpoints {
				s.slices = append(s.slices, slice{endpoints: "a1", target: spareTarget + uint16(i)})
			}
			c.serve("web", &s)
			// One path in each family: the same rule chooses the endpoint for
			// all paths.
			for f, path := range []string{"pod1 -> clusterIP", "client -> nodePort@node1"} {
				k := c.checks(&s, path+" => refused")[f]
				counts := k.spread(t, test.connections)
				if got := chiSquared(counts, test.endpoints); len(counts) != test.endpoints || got > test.limit {
					t.Errorf("%s, %v: got chi-squared %.1f, want at most %.1f; connections by endpoint: %v",
						path, family(f), got, test.limit, counts)
				}
			}
		})
	}
}

// serveNumbered serves at port spareTarget+i of a pod as server "i".
func serveNumbered(t *testing.T, pod *lab.Pod, i int) {
	for _, addr := range pod.Addrs() {
		var socket *net.UDPConn
		err := pod.Do(func() (err error) {
			socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, spareTarget+uint16(i))))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { socket.Close() })
		go func() {
			question := make([]byte, 64)
			for {
				_, from, err := socket.ReadFromUDPAddrPort(question)
				switch {
				case errors.Is(err, net.ErrClosed):
					return
				case err == nil:
					answer := lab.Answer{Server: fmt.Sprint(i), Source: from}
					socket.WriteToUDPAddrPort([]byte(answer.String()+"\n"), from)
				}
			}
		}()
	}
}

// spread makes connections and returns their number by server.
func (c *check) spread(t *testing.T, connections int) map[string]int {
	t.Helper()
	var mu sync.Mutex
	counts := make(map[string]int)
	const workers = 4
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for range connections / workers {
				result := c.probe(t.Context(), lab.ProbeOptions{Timeout: answerTimeout})
				if result.Outcome != lab.Answered {
					t.Errorf("%s: %v", c.describe, result)
					return
				}
				mu.Lock()
				counts[result.Answer.Server]++
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return counts
}

// chiSquared returns the test statistic for n equal counts.
func chiSquared(counts map[string]int, n int) float64 {
	total := 0
	for _, count := range counts {
		total += count
	}
	expected := float64(total) / float64(n)
	sum := float64(n-len(counts)) * expected // of servers without connections
	for _, count := range counts {
		difference := float64(count) - expected
		sum += difference * difference / expected
	}
	return sum
}
