package doctor

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// prepare creates a node whose pods 10.244.1.0/24 are behind the interface
// pods, and that reaches everything else by the interface uplink. As many
// Services have an endpoint that is a host of its network.
func prepare(t *testing.T, hosts int) {
	t.Helper()
	tabletest.NewNamespace(t)
	for _, command := range []string{
		"link set lo up",
		"link add uplink type bridge", "link set uplink up",
		"addr add 172.30.0.11/24 dev uplink",
		"route add default via 172.30.0.1",
		"link add pods type bridge", "link set pods up", "link add pod type veth peer name eth0",
		"link set pod master pods", "addr add 10.244.1.1/24 dev pods",
	} {
		if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", command, err, out)
		}
	}
	tables, err := table.New(table.Config{Rules: tabletest.Rules()}, nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	defer tables[0].Close()
	if err := tables[0].Setup(); err != nil {
		t.Fatal(err)
	}
	tabletest.PassSample(tables[0])
	for i := range hosts {
		host := tabletest.Service(fmt.Sprint("host", i), fmt.Sprint("10.96.1.", i), nil)
		tables[0].SetService(host)
		tabletest.SetEndpoint(tables[0], host.Name, tabletest.Endpoint(fmt.Sprint("172.30.0.", 20+i)))
	}
	tabletest.Sync(t, tables[0])
}

// blocks returns the rules that block samples, without the samples: "certain
// table inet t: chain c: rule 1: drop".
func blocks(t *testing.T) (texts []string) {
	t.Helper()
	found, samples, err := findBlocks(t.Context(), (*sample).journeys)
	if err != nil {
		t.Fatal(err)
	}
	if samples < 5 {
		t.Errorf("got %d samples, want at least 5", samples)
	}
	for _, b := range found {
		text := fmt.Sprintf("%s: chain %s: rule %d: %s", b.table, b.chain, b.rule, b.text)
		if !b.certain {
			text = "perhaps " + text
		}
		texts = append(texts, text)
		t.Logf("%s: %s", text, b.packet)
	}
	return texts
}

// A host of the node's network, such as the API server, is not a pod.
func TestHostsAreNoPods(t *testing.T) {
	prepare(t, 40) // few enough for a sample to have all rows
	tabletest.LoadNFT(t, `table inet fw { chain forward {
		type filter hook forward priority 0
		ip saddr 10.244.1.0/24 ip daddr 10.244.1.0/24 drop
		ip saddr 172.30.0.0/24 ct state new drop
	}; }`)
	want := "[table inet fw: chain forward: rule 1: ip saddr 10.244.1.0/24 ip daddr 10.244.1.0/24 drop]"
	if got := fmt.Sprint(blocks(t)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestBlocks(t *testing.T) {
	tests := []struct {
		name, rules string
		want        []string
	}{
		{"no other table", "", nil},
		{"accepts translated connections", `table inet fw { chain forward {
			type filter hook forward priority 0; policy drop
			ct state established,related accept
			ct status dnat accept
		}; }`, nil},
		{"accepts pods", `table ip fw { chain forward {
			type filter hook forward priority 0; policy drop
			ip saddr 10.244.0.0/16 accept
			ip daddr 10.244.0.0/16 accept
		}; }`, nil},
		{"policy", `table inet fw { chain forward {
			type filter hook forward priority 0; policy drop
			iifname "docker0" accept
		}; }`, []string{"table inet fw: chain forward: rule 0: policy drop"}},
		{"rule of a chain that another one leads to", `table inet fw {
			chain last { counter reject with icmpx admin-prohibited comment "the end"; }
			chain zone { meta l4proto { tcp, udp } goto last; }
			chain forward {
				type filter hook forward priority 0
				iifname vmap { "uplink" : jump zone }
			}
		}`,
			[]string{`table inet fw: chain last: rule 1: ` +
				`counter reject with icmpx admin-prohibited comment "the end"`}},
		{"dormant", `table inet fw {
			flags dormant
			chain forward { type filter hook forward priority 0; policy drop; }
		}`, nil},
		{"limit", `table inet fw { chain forward {
			type filter hook forward priority 0
			limit rate 5/second drop
		}; }`, []string{"perhaps table inet fw: chain forward: rule 1: limit rate 5/second drop"}},
		{"unknown set of sources, other port", `table inet fw { chain forward {
			type filter hook forward priority 0
			ip saddr 192.0.2.0/24 drop
			tcp dport 22 drop
			tcp dport 8000-8079 drop
			tcp sport 53 ct state established accept
			ct state invalid drop
		}; chain prerouting {
			type filter hook prerouting priority 0
			fib saddr . iif oif missing drop
		}; }`, nil},
		{"answers", `table inet fw { chain forward {
			type filter hook forward priority 0; policy drop
			ct state new accept
		}; }`, []string{"table inet fw: chain forward: rule 0: policy drop"}},
		{"from this node", `table ip fw { chain output {
			type filter hook output priority 0
			oifname "uplink" ip daddr 10.244.0.0/16 drop
		}; }`, []string{`table ip fw: chain output: rule 1: oifname "uplink" ip daddr 10.244.0.0/16 drop`}},
		{"before translation", `table ip raw { chain prerouting {
			type filter hook prerouting priority -300
			ip daddr 10.96.0.0/16 drop
			ip daddr 192.0.2.0/24 drop
		}; }`, []string{
			"table ip raw: chain prerouting: rule 1: ip daddr 10.96.0.0/16 drop",
			"table ip raw: chain prerouting: rule 2: ip daddr 192.0.2.0/24 drop",
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			prepare(t, 0)
			tabletest.LoadNFT(t, test.rules)
			got := blocks(t)
			if test.name == "before translation" { // which Services are sampled is not defined
				if len(got) == 0 || !strings.HasPrefix(got[0], "table ip raw: chain prerouting: rule") {
					t.Errorf("got %q, want one of %q", got, test.want)
				}
				return
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
