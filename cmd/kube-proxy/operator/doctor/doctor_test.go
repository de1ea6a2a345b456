package doctor_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/doctor"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// sh runs commands in the namespace of the test, one per line.
func sh(t testing.TB, commands string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v: %s", commands, err, out)
	}
}

// healthy creates a node on which no check warns. Its pods 10.244.1.0/24 are
// behind the interface pods, everything else behind uplink.
func healthy(t testing.TB, rules ruleset.Config) {
	t.Helper()
	tabletest.NewNamespace(t)
	sh(t, `ip link set lo up
		sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0
		ip link add uplink type veth peer name far
		ip link set far up
		ip link set uplink up
		ip link add pods type veth peer name pod
		ip link set pod up
		ip link set pods up
		ip addr add 172.30.0.11/24 dev uplink
		ip route add default via 172.30.0.1
		ip -6 addr add fd00:30::11/64 dev uplink nodad
		ip -6 route add default via fd00:30::1
		ip addr add 10.244.1.1/24 dev pods
		ip -6 addr add fd00:244:1::1/64 dev pods nodad
		ip neigh add 10.244.1.5 lladdr 02:00:00:00:00:05 dev pods
		for i in uplink far pods pod; do sysctl -qw net.ipv4.conf.$i.rp_filter=0; done`)
	tables, err := table.New(table.Config{Rules: rules}, nft.IPv4, nft.IPv6)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		defer table.Close()
		if err := table.Setup(); err != nil {
			t.Fatal(err)
		}
		tabletest.PassSample(table)
		tabletest.Sync(t, table)
	}
}

// finding returns the finding of a check.
func finding(t testing.TB, config doctor.Config, check string) doctor.Finding {
	t.Helper()
	for _, f := range doctor.Run(context.Background(), config).Findings {
		if f.Check == check {
			return f
		}
	}
	t.Fatalf("got no check %s", check)
	panic("not reached")
}

func (e expectation) check(t testing.TB, config doctor.Config) {
	t.Helper()
	f := finding(t, config, e.name)
	text := f.Reason + "\n" + strings.Join(f.Details, "\n")
	if f.Result != e.result || !strings.Contains(text, e.contains) {
		t.Errorf("got %s: %s, want %s with %q", f.Result, text, e.result, e.contains)
	}
	if (f.Result == doctor.Warn || f.Result == doctor.Fail) && f.Remedy == "" {
		t.Errorf("%s has no remedy", f.Check)
	}
}

// expectation is the result of a check, and a part of its reason or details.
type expectation struct {
	name     string
	result   doctor.Result
	contains string
}

func TestHealthy(t *testing.T) {
	healthy(t, tabletest.Rules())
	r := doctor.Run(context.Background(), doctor.Config{Version: "v1"})
	for _, f := range r.Findings {
		t.Logf("%-8s %-20s %s %v", f.Result, f.Check, f.Reason, f.Details)
	}
	if r.Bad() {
		t.Error("got a warning, want none")
	}
	if r.Version != "v1" || r.Kernel == "" || r.Node == "" || r.Time.IsZero() {
		t.Errorf("got report %+v", r)
	}
}

// Each check warns if a command breaks the node.
func TestBroken(t *testing.T) {
	tests := []struct {
		name, commands string
		expectation
	}{
		{"dormant table", "nft add table ip kube-proxy '{ flags dormant; }'",
			expectation{"table", doctor.Fail, "dormant"}},
		{"table of another program", "nft 'delete table ip kube-proxy; add table ip kube-proxy'",
			expectation{"table", doctor.Fail, "belongs to kube-proxy or another program"}},
		{"one family", "nft delete table ip6 kube-proxy",
			expectation{"table", doctor.Info, "no proxy has served IPv6"}},
		{"no table", "nft flush ruleset",
			expectation{"table", doctor.Warn, "no table kube-proxy"}},
		{"the kernel refuses a rule", `nft add table ip nftproxy-probe
			nft add set ip nftproxy-probe service-ips '{ type mark; }'`,
			expectation{"kernel-features", doctor.Fail, "IPv4: add set service-ips"}},
		{"no forwarding", "sysctl -qw net.ipv4.ip_forward=0",
			expectation{"ip-forward", doctor.Fail, "net.ipv4.ip_forward is 0"}},
		{"no forwarding from an interface", "sysctl -qw net.ipv4.conf.pods.forwarding=0",
			expectation{"ip-forward", doctor.Warn, "pods"}},
		{"no IPv6 forwarding", "sysctl -qw net.ipv6.conf.all.forwarding=0",
			expectation{"ip-forward", doctor.Warn, "IPv6"}},
		{"strict rp_filter", "sysctl -qw net.ipv4.conf.all.rp_filter=1",
			expectation{"rp-filter", doctor.Info, "uplink"}},
		{"strict rp_filter with two uplinks", `sysctl -qw net.ipv4.conf.uplink.rp_filter=1
			ip addr add 172.31.0.11/24 dev far
			ip route add default via 172.31.0.1 metric 100`,
			expectation{"rp-filter", doctor.Warn, "default routes leave by uplink, far"}},
		{"strict rp_filter with policy routing", `sysctl -qw net.ipv4.conf.uplink.rp_filter=1
			ip rule add from 10.0.0.0/8 table 100`,
			expectation{"rp-filter", doctor.Warn, "policy routing"}},
		{"loose rp_filter", "sysctl -qw net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.uplink.rp_filter=1",
			expectation{"rp-filter", doctor.OK, ""}},
		{"route_localnet", "sysctl -qw net.ipv4.conf.all.route_localnet=1",
			expectation{"route-localnet", doctor.Warn, "is 1 on all"}},
		{"route_localnet of an interface", "sysctl -qw net.ipv4.conf.pods.route_localnet=1",
			expectation{"route-localnet", doctor.Warn, "is 1 on pods"}},
		{"liberal", "sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=1",
			expectation{"conntrack-liberal", doctor.OK, ""}},
		{"range of local ports", "sysctl -qw net.ipv4.ip_local_port_range='32000 60999'",
			expectation{"nodeport-range", doctor.Warn, "overlaps"}},
		{"reserved ports", "sysctl -qw net.ipv4.ip_local_port_range='32000 60999' " +
			"net.ipv4.ip_local_reserved_ports=31000-32767",
			expectation{"nodeport-range", doctor.OK, ""}},
		{"NodePort in the range of local ports", "sysctl -qw net.ipv4.ip_local_port_range='30000 60999' " +
			"net.ipv4.ip_local_reserved_ports=30080",
			expectation{"nodeport-range", doctor.Warn, "NodePort 30090"}},
		{"one local port", "sysctl -qw net.ipv4.ip_local_port_range='32768 32768'",
			expectation{"nodeport-range", doctor.OK, "net.ipv4.ip_local_port_range (32768) contains no NodePort"}},
		{"bridge of pods", `ip link add br0 type bridge
			ip link set br0 up
			ip link set pods master br0
			ip link set far master br0
			sysctl -qw net.bridge.bridge-nf-call-iptables=0`,
			expectation{"bridge-netfilter", doctor.Warn, "br0"}},
		{"chains of mode iptables", `iptables-nft -t nat -N KUBE-SERVICES
			iptables-nft -t nat -A PREROUTING -j KUBE-SERVICES`,
			expectation{"leftovers", doctor.Warn, "table ip nat: 1 rule and 1 chain"}},
		{"legacy chains of mode iptables", `ip6tables-legacy -t nat -N KUBE-SERVICES`,
			expectation{"leftovers", doctor.Warn, "legacy table ip6 nat: 0 rules and 1 chain"}},
		{"mode ipvs", `ip link add kube-ipvs0 type veth peer name x`,
			expectation{"leftovers", doctor.Warn, "kube-ipvs0"}},
		{"IP sets", `ipset create KUBE-CLUSTER-IP hash:ip,port`,
			expectation{"leftovers", doctor.Warn, "1 IP set"}},
		{"kube-router", "ip link add kube-dummy-if type veth peer name x",
			expectation{"other-proxies", doctor.Warn, "kube-router"}},
		{"kpng", "nft add table ip k8s_svc", expectation{"other-proxies", doctor.Warn, "kpng"}},
		{"pods outside of clusterCIDR", `ip addr flush dev pods
			ip addr add 10.99.0.1/24 dev pods`,
			expectation{"local-detection", doctor.Warn,
				"IPv4: the rules recognize pods by the range 10.244.0.0/16, but no"}},
		{"policy drop", `nft add table inet fw
			nft add chain inet fw forward '{ type filter hook forward priority 0; policy drop; }'`,
			expectation{"filters", doctor.Fail, "table inet fw, chain forward: policy drop: drops"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			healthy(t, tabletest.Rules())
			sh(t, test.commands)
			test.check(t, doctor.Config{})
		})
	}
}

// The uplink of a node that is a container is a veth, and not an interface of
// pods, also if the node has IPv6 only.
func TestUplinkIsNoPod(t *testing.T) {
	for _, family := range []string{"-4", "-6"} {
		rules := tabletest.Rules()
		rules.DetectLocal = ruleset.LocalDetection{
			Mode: ruleset.DetectLocalInterfaceNamePrefix, InterfaceNamePrefix: "cali",
		}
		healthy(t, rules)
		sh(t, "ip "+family+" route del default")
		if f := finding(t, doctor.Config{}, "local-detection"); strings.Contains(fmt.Sprint(f), "uplink") {
			t.Errorf("without the default route of ip %s: got %v", family, f)
		}
	}
}

func TestLocalDetection(t *testing.T) {
	tests := []struct {
		name   string
		detect ruleset.LocalDetection
		expectation
	}{
		{"interface", ruleset.LocalDetection{Mode: ruleset.DetectLocalInterfaceNamePrefix, InterfaceNamePrefix: "pod"},
			expectation{"local-detection", doctor.OK, "interface pod*"}},
		{"no interface", ruleset.LocalDetection{Mode: ruleset.DetectLocalInterfaceNamePrefix,
			InterfaceNamePrefix: "cali"},
			expectation{"local-detection", doctor.Warn, "interfaces of pods: "}},
		{"no bridge", ruleset.LocalDetection{Mode: ruleset.DetectLocalBridgeInterface, BridgeInterface: "cni0"},
			expectation{"local-detection", doctor.Warn, "interface cni0"}},
		{"none", ruleset.LocalDetection{Mode: ruleset.DetectLocalClusterCIDR},
			expectation{"local-detection", doctor.Info, "recognize no pods"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rules := tabletest.Rules()
			rules.DetectLocal = test.detect
			healthy(t, rules)
			test.check(t, doctor.Config{})
		})
	}
}

// iptables of both variants leads to the same findings.
func TestIptables(t *testing.T) {
	tests := []struct {
		name, rules string
		result      doctor.Result
		contains    string
	}{
		{"policy", "-P FORWARD DROP", doctor.Fail, "ip filter, chain FORWARD: policy drop"},
		{"Docker", `-P FORWARD DROP
			-N DOCKER
			-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
			-A FORWARD -o docker0 -j DOCKER
			-A FORWARD -i docker0 ! -o docker0 -j ACCEPT`, doctor.Fail, "chain FORWARD: policy drop"},
		{"translated connections", `-P FORWARD DROP
			-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT`, doctor.OK, ""},
		{"only new connections", `-P FORWARD DROP
			-A FORWARD -m state --state NEW -j ACCEPT`, doctor.Fail, "the answer to"},
		{"pods", `-P FORWARD DROP
			-A FORWARD -s 10.244.0.0/16 -j ACCEPT
			-A FORWARD -m comment --comment pods -d 10.244.0.0/16 -j ACCEPT`, doctor.OK, ""},
		{"chain of a rule", `-N zone
			-N out
			-A FORWARD -i uplink -g zone
			-A zone -p tcp -m multiport --dports 22,8000:9000 -j out
			-A zone -j ACCEPT
			-A out -m addrtype ! --dst-type LOCAL -j REJECT`, doctor.Fail, "chain out, rule 1"},
		{"does not match", `-A FORWARD ! -i u+ -o uplink -s 192.0.2.0/24 -j DROP
			-A FORWARD -p udp -j DROP
			-A FORWARD -p tcp --dport 22 -j DROP
			-A FORWARD -p tcp --sport 8000 -j DROP
			-A FORWARD -m mark --mark 0x8000/0x8000 -j DROP
			-A FORWARD -m conntrack --ctstate INVALID -j DROP
			-A FORWARD -p tcp -m multiport --sports 1,2 -j REJECT
			-A FORWARD -p tcp ! --syn -m conntrack --ctstate NEW -j DROP
			-A FORWARD -m addrtype --dst-type LOCAL -j DROP`, doctor.OK, ""},
		{"inverted matches", `-A FORWARD ! -s 203.0.113.1 -j RETURN
			-A FORWARD ! -d 192.0.2.0/24 ! -i pods ! -o nothing ! -p sctp -j DROP`,
			doctor.Fail, "chain FORWARD, rule 2"},
		{"mark for masquerading", `-P FORWARD DROP
			-A FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
			-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT
			-A FORWARD -s 10.0.0.0/8 -d 10.0.0.0/8 -j ACCEPT`, doctor.OK, ""},
		{"not decided", "-A FORWARD -m limit --limit 1/s -j DROP", doctor.Info, "may drop"},
		{"policy not decided", "-P FORWARD DROP\n-A FORWARD -m limit --limit 1/s -j ACCEPT", doctor.Warn, "may drop"},
		{"from this node", "-A OUTPUT -o pods -p tcp --dport 8080 -j REJECT", doctor.Fail, "chain OUTPUT, rule 1"},
	}
	for _, test := range tests {
		for _, variant := range []string{"nft", "legacy"} {
			t.Run(test.name+" "+variant, func(t *testing.T) {
				healthy(t, tabletest.Rules())
				var script strings.Builder
				for line := range strings.Lines(test.rules) {
					script.WriteString("iptables-" + variant + " " + strings.TrimSpace(line) + "\n")
				}
				sh(t, script.String())
				expectation{"filters", test.result, test.contains}.check(t, doctor.Config{})
			})
		}
	}
}

// An endpoint on this node is reached through the chains of input.
func TestInput(t *testing.T) {
	healthy(t, tabletest.Rules())
	sh(t, `ip addr add 10.244.2.6/32 dev lo
		ip addr add 10.244.2.5/32 dev lo
		ip addr add 10.244.2.7/32 dev lo
		iptables-nft -A INPUT -p tcp --dport 8080 -j REJECT`)
	expectation{"filters", doctor.Fail, "table ip filter, chain INPUT, rule 1"}.check(t, doctor.Config{})
}

func TestConntrackFill(t *testing.T) {
	for _, test := range []struct {
		count  string
		result doctor.Result
	}{{"799", doctor.OK}, {"800", doctor.Warn}, {"950", doctor.Fail}} {
		root := t.TempDir()
		write(t, root, "proc/sys/net/netfilter/nf_conntrack_count", test.count)
		write(t, root, "proc/sys/net/netfilter/nf_conntrack_max", "1000")
		expectation{"conntrack", test.result, test.count + " of 1000"}.check(t, doctor.Config{Root: root})
	}
}

func TestCilium(t *testing.T) {
	root := t.TempDir()
	write(t, root, "sys/fs/bpf/cilium/socketlb/links/cgroup/cil_sock4_connect", "")
	expectation{"other-proxies", doctor.Warn, "Cilium"}.check(t, doctor.Config{Root: root})
}

func write(t testing.TB, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestProxies(t *testing.T) {
	tabletest.NewNamespace(t)
	expectation{"proxies", doctor.Info, "no process"}.check(t, doctor.Config{})
	program := filepath.Join(t.TempDir(), "kube-proxy")
	sh(t, "cp $(readlink -f /bin/sleep) "+program)
	for _, want := range []expectation{
		{"proxies", doctor.OK, "one proxy"}, {"proxies", doctor.Fail, "2 processes"},
	} {
		cmd := exec.Command(program, "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		want.check(t, doctor.Config{})
	}
}

// The checks take little time with 10,000 Services.
func BenchmarkRun(b *testing.B) {
	for _, fast := range []bool{true, false} {
		name := "all"
		if fast {
			name = "fast"
		}
		b.Run(name, func(b *testing.B) {
			healthy(b, tabletest.Rules())
			fill(b, 10000)
			b.ResetTimer()
			for b.Loop() {
				doctor.Run(context.Background(), doctor.Config{Fast: fast})
			}
			for _, f := range doctor.Run(context.Background(), doctor.Config{Fast: fast}).Findings {
				b.ReportMetric(f.Seconds*1000, f.Check+"-ms")
			}
		})
	}
}

// fill writes n Services with ten endpoints and a NodePort.
func fill(b *testing.B, n int) {
	b.Helper()
	tables, err := table.New(table.Config{Rules: tabletest.Rules()}, nft.IPv4)
	if err != nil {
		b.Fatal(err)
	}
	defer tables[0].Close()
	if err := tables[0].Setup(); err != nil {
		b.Fatal(err)
	}
	tables[0].SetNode(tabletest.Node())
	for i := range n {
		service := tabletest.NumberedService(i)
		if i < 2000 {
			service.Ports[0].NodePort = 30000 + uint16(i)
		}
		tables[0].SetService(service)
		for e := range tabletest.ManyEndpoints {
			tabletest.SetEndpoint(tables[0], service.Name, tabletest.NumberedEndpoint(i, e))
		}
	}
	tabletest.Sync(b, tables[0])
}

// Each finding refers to a section of the documentation, which lists the checks
// that are not fast.
func TestDocumentation(t *testing.T) {
	tabletest.NewNamespace(t)
	page, err := os.ReadFile("../../../../docs/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	names := func(fast bool) map[string]bool {
		all := make(map[string]bool)
		for _, f := range doctor.Run(context.Background(), doctor.Config{Fast: fast}).Findings {
			all[f.Check] = true
		}
		return all
	}
	_, list, _ := strings.Cut(string(page), "more than a few milliseconds: ")
	list, _, _ = strings.Cut(list, ".\n")
	slow := strings.Split(list, ", ")
	fast := names(true)
	for name := range names(false) {
		if section := "\n## " + name + "\n"; !strings.Contains(string(page), section) {
			t.Errorf("docs/checks.md: got no %q", section)
		}
		if slices.Contains(slow, name) == fast[name] {
			t.Errorf("docs/checks.md: the checks that --fast leaves out are %q, %s is fast: %v", slow, name, fast[name])
		}
	}
}
