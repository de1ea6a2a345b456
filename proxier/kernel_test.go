package proxier

import (
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// newNamespace puts the test into a network namespace of its own. The test's thread ends with the test, and
// the namespace with it.
func newNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace (needs root): %v", err)
	}
}

// runNFT runs the nft program on input and returns what it prints.
func runNFT(t testing.TB, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v\n%s\ninput:\n%s", strings.Join(args, " "), err, out, input)
	}
	return string(out)
}

// newBackend returns a set-up backend in the test's namespace.
func newBackend(t testing.TB, config *Config, f nft.Family) *Backend {
	t.Helper()
	b, err := NewBackend(config, f)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Setup(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func mustSync(t testing.TB, s Sink) {
	t.Helper()
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
}

// list returns what nft lists of the table, in an order that does not depend on that of writing.
func list(t testing.TB, f nft.Family) []string {
	t.Helper()
	return canonical(runNFT(t, "", "list", "table", f.String(), TableName))
}

var (
	elementComments = regexp.MustCompile(` comment "[^"]*"( :|,| \}|$)`)
	expirations     = regexp.MustCompile(` expires \w+`)
)

// canonical splits a listing into its sets and chains, with their elements in order, without comments on elements, sorted.
func canonical(listing string) []string {
	var blocks []string
	for _, block := range strings.Split(strings.ReplaceAll(listing, "\n\t}\n", "\n\t}\x00"), "\x00") {
		head, elements, ok := strings.Cut(block, "elements = {")
		if ok {
			elements, tail, _ := strings.Cut(elements, "}")
			var list []string
			for _, e := range strings.Split(elements, ",") {
				e = strings.TrimSpace(e)
				e = elementComments.ReplaceAllString(e, "$1")
				list = append(list, expirations.ReplaceAllString(e, ""))
			}
			slices.Sort(list)
			block = head + "elements = {\n" + strings.Join(list, "\n") + "}" + tail
		}
		blocks = append(blocks, strings.TrimSpace(block))
	}
	slices.Sort(blocks)
	return blocks
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// sampleNode is the node of testdata/sample-ipv4.nft and its twin.
func sampleNode() *Node {
	return &Node{
		Name: "node1", IPs: []netip.Addr{addr("172.30.0.11"), addr("fd00:30::11")},
		ServiceCIDRs: []netip.Prefix{prefix("10.96.0.0/16"), prefix("fd00:96::/112")},
	}
}

func sampleConfig() *Config {
	nodePorts, err := ParseNodePortAddresses([]string{"0.0.0.0/0", "::/0"})
	if err != nil {
		panic(err)
	}
	return &Config{
		NodeName: "node1", NodePortAddresses: nodePorts,
		DetectLocal: LocalDetection{Mode: DetectLocalClusterCIDR, ClusterCIDRs: []netip.Prefix{prefix("10.244.0.0/16"), prefix("fd00:244::/32")}},
	}
}

// tellSample tells a sink of the Services of testdata/sample-ipv4.nft and its twin.
func tellSample(s Sink) {
	both := []nft.Family{nft.IPv4, nft.IPv6}
	service := func(name string, last string, change func(*Service), endpoints ...string) {
		svc := &Service{
			Name: ServiceName{"default", name}, Families: both,
			ClusterIPs: []netip.Addr{addr("10.96.0." + last), addr("fd00:96::" + last)},
			Ports:      []ServicePort{{Name: "http", Protocol: TCP, Port: 80}},
		}
		change(svc)
		s.SetService(svc)
		for _, e := range endpoints { // node.last
			node, last, _ := strings.Cut(e, ".")
			for _, a := range []string{"10.244." + node + "." + last, "fd00:244:" + node + "::" + last} {
				s.SetEndpoint(svc.Name, &Endpoint{
					EndpointKey: EndpointKey{Source: name, Addr: addr(a)}, Node: "node" + node, Ready: true, Serving: true,
					Ports: []EndpointPort{{Name: "http", Protocol: TCP, Port: 8080}},
				})
			}
		}
	}
	s.SetNode(sampleNode())
	service("web", "10", func(*Service) {}, "1.5", "2.5", "3.5")
	service("lb", "20", func(svc *Service) {
		svc.LoadBalancerIPs = []netip.Addr{addr("192.0.2.10"), addr("2001:db8::10")}
		svc.SourceRanges = []netip.Prefix{prefix("198.51.100.0/24"), prefix("2001:db8:51::/64")}
		svc.ExternalPolicy = PolicyLocal
		svc.Ports[0].NodePort = 30080
	}, "1.6", "2.6")
	service("ext", "30", func(svc *Service) {
		svc.ExternalIPs = []netip.Addr{addr("192.0.2.20"), addr("2001:db8::20")}
		svc.Ports[0].NodePort = 30090
	}, "1.7", "2.7")
	service("sticky", "40", func(svc *Service) { svc.AffinityTimeout = 3 * time.Hour }, "1.8", "2.8")
	service("none", "50", func(*Service) {})
}

// What is written for the sample cluster lists as the reference ruleset loaded by nft does, and the listing loads again.
func TestSampleRuleset(t *testing.T) {
	for _, tt := range []struct {
		family nft.Family
		file   string
	}{{nft.IPv4, "testdata/sample-ipv4.nft"}, {nft.IPv6, "testdata/sample-ipv6.nft"}} {
		t.Run(tt.family.String(), func(t *testing.T) {
			newNamespace(t)
			reference, err := os.ReadFile(tt.file)
			if err != nil {
				t.Fatal(err)
			}
			runNFT(t, string(reference), "-f", "-")
			want := list(t, tt.family)

			runNFT(t, "", "flush", "ruleset")
			b := newBackend(t, sampleConfig(), tt.family)
			tellSample(b)
			mustSync(t, b)
			if got := list(t, tt.family); !slices.Equal(got, want) {
				t.Errorf("%s lists differently:\n%s", tt.family, difference(want, got))
			}

			listing := runNFT(t, "", "list", "table", tt.family.String(), TableName)
			runNFT(t, "flush ruleset\n"+listing, "-f", "-")
			if again := list(t, tt.family); !slices.Equal(again, want) {
				t.Errorf("%s: the listing does not load as it was:\n%s", tt.family, difference(want, again))
			}
		})
	}
}

// difference returns the blocks that are in one listing only.
func difference(want, got []string) string {
	var s strings.Builder
	for _, b := range want {
		if !slices.Contains(got, b) {
			s.WriteString("- " + b + "\n")
		}
	}
	for _, b := range got {
		if !slices.Contains(want, b) {
			s.WriteString("+ " + b + "\n")
		}
	}
	return s.String()
}
