package operator_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/manifest"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// listen makes a proxy answer in the network namespace of the test until the
// test ends.
func listen(t *testing.T, pages ...socket.Page) {
	t.Helper()
	pages = append(pages, ready.AnsweredBy(func(context.Context, string, func(*string) error) error { return nil }))
	server, err := socket.NewServer(pages)
	if err != nil {
		t.Fatal(err)
	}
	background(t, server.Run)
	for range 1000 {
		err = nil
		for _, err = range ready.Ask(t.Context(), &socket.Client{}, "") {
		}
		if err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the proxy does not listen")
}

// ready is a question without an answer.
var ready = socket.Question[string, string]{
	Path: "/ready", Format: func(string) url.Values { return nil },
	Parse: func(url.Values) (string, error) { return "", nil },
}

// background runs f until the test ends.
func background(t *testing.T, f func(context.Context)) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
}

// statusPage answers with a status.
func statusPage(status answer.ProxyStatus) socket.Page {
	return answer.Status.AnsweredBy(func(_ context.Context, _ struct{}, yield func(*answer.ProxyStatus) error) error {
		return yield(&status)
	})
}

// clock returns a time of day of the sample status.
func clock(text string) time.Time {
	at, err := time.Parse("15:04:05.000", text)
	if err != nil {
		panic(err)
	}
	return at.AddDate(2026, 0, 0)
}

// sampleStatus returns the status of a healthy proxy.
func sampleStatus() answer.ProxyStatus {
	return answer.ProxyStatus{Version: "v1.2.3", Status: proxier.Status{
		Mode: "nftables", Node: "node1", PID: 4711, Time: clock("12:00:00.000"), Started: clock("09:48:00.000"),
		Listed: true, NodeEligible: true,
		Families: []proxier.FamilyStatus{
			{
				Family: nft.IPv4, Healthy: true, Synced: clock("11:59:58.500"),
				LastSync: &proxier.SyncStatus{Ended: clock("11:59:58.500"), Seconds: 0.001234, Cause: "changes"},
				Stats: table.Stats{
					Services: 12, ServicePorts: 14, Endpoints: 30, Rewrites: 2,
					Rows: map[string]int{"service-classes": 14, "service-targets": 30, "no-endpoint-services": 0},
				},
			},
			{
				Family: nft.IPv6, Healthy: true, Synced: clock("11:59:58.501"),
				LastSync: &proxier.SyncStatus{Ended: clock("11:59:58.501"), Cause: "first sync", Whole: true},
				Stats:    table.Stats{Rewrites: 1},
			},
		},
	}}
}

// A check of doctor that fails makes the status degraded.
func TestStatusOfDoctor(t *testing.T) {
	tabletest.NewNode(t)
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	listen(t, statusPage(sampleStatus()))
	got := run("status")
	if !strings.HasPrefix(got, "STATE      degraded\n           ip-forward: net.ipv4.ip_forward is 0") {
		t.Errorf("got %s, want a degraded proxy because of ip-forward", got)
	}
	if got := run("status -o wide"); !strings.Contains(got, "remedy: ") {
		t.Errorf("got %s, want a remedy", got)
	}
}

// No control character of an answer or an error reaches the terminal.
func TestControlCharacters(t *testing.T) {
	tabletest.NewNode(t)
	const hostile = "\x1b]0;x\a\r\u009b31m\u202e"
	status := sampleStatus()
	status.Node = hostile
	status.Families[0].LastSync.Error = hostile
	status.Families[0].Repairs = map[keep.DamageKind]int{hostile: 1}
	listen(t, statusPage(status))
	for _, commandLine := range []string{
		"status", "status -o wide", "status -o json", "status -o yaml", hostile, "status --socket /" + hostile,
	} {
		got := run(commandLine)
		for _, r := range got {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%s: got %q, want no character %q", commandLine, got, r)
				break
			}
		}
	}
}

func TestStatus(t *testing.T) {
	tests := []struct {
		name   string
		change func(*answer.ProxyStatus)
	}{
		{"healthy", func(*answer.ProxyStatus) {}},
		{"degraded", func(s *answer.ProxyStatus) {
			v4, v6 := &s.Families[0], &s.Families[1]
			s.InvalidObjects = 2
			v4.LastSync.Error = "commit table ip kube-proxy: operation not permitted"
			v4.Repairs = map[keep.DamageKind]int{"row": 1, "set": 2}
			v4.Refused = 1
			v4.RefusedPorts = []table.RefusedPort{{Name: "default/x:http", Reason: "add chain: name too long"}}
			v4.Contested = 1
			v4.WaitingPorts = []table.WaitingPort{
				{Name: "default/y:http", Frontend: "192.0.2.1:80/tcp", Owner: "default/z:http"},
			}
			v6.Healthy, v6.WaitingSince = false, clock("11:58:30.000")
			v6.Refused, v6.Contested = 100, 100
		}},
		{"starting", func(s *answer.ProxyStatus) {
			s.Listed, s.Families = false, s.Families[:1]
			s.Families[0] = proxier.FamilyStatus{Family: nft.IPv4, Healthy: true}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tabletest.NewNode(t)
			t.Setenv("KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK", "1")
			status := sampleStatus()
			test.change(&status)
			listen(t, statusPage(status))
			compare(t, "testdata/status-"+test.name+".txtar")
		})
	}
}

// Without a proxy, status shows the tables in the kernel.
func TestStatusWithoutProxy(t *testing.T) {
	tabletest.NewNode(t)
	tabletest.LoadNFT(t, "table ip kube-proxy { set service-targets { type ipv4_addr; }; }")
	tabletest.LoadNFT(t, "table ip6 kube-proxy { chain services { }; }")
	compare(t, "testdata/status-unreachable.txtar")
	tabletest.LoadNFT(t, "delete table ip6 kube-proxy; table ip6 kube-proxy { flags dormant; }")
	if got := run("status"); !strings.Contains(got, "TABLE  ip6 kube-proxy  dormant") {
		t.Errorf("got %s, want a dormant table", got)
	}
	tabletest.LoadNFT(t, "delete table ip kube-proxy")
	serve(t, table.Config{Rules: tabletest.Rules()})
	got := run("status")
	counted := regexp.MustCompile(`\n  service-classes +9\n`).MatchString(got) // Linux 6.15 and later
	if none := !strings.Contains(got, "service-classes"); !counted && !none {
		t.Errorf("got %s, want 9 rows of service-classes, or no number", got)
	}
}

// A proxy that accepts connections but does not answer costs the timeout.
func TestStatusOfHungProxy(t *testing.T) {
	tabletest.NewNode(t)
	t.Chdir(t.TempDir())
	l, err := net.Listen("unix", "hung.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const want = "did not answer in time"
	expect(t, "services --socket hung.sock --timeout 10ms", want, 1)
	got := run("status --socket hung.sock --timeout 10ms")
	if !strings.Contains(got, want) || !strings.HasSuffix(got, "exit code 2\n") {
		t.Errorf("got %s, want %q and exit code 2", got, want)
	}
}

// The sections of testdata/services.txtar are commands on a node with a proxy
// that serves the manifests of testdata/cluster.
func TestServices(t *testing.T) {
	tabletest.NewNode(t)
	serveManifests(t, "testdata/cluster", tabletest.Rules())
	compare(t, "testdata/services.txtar")
}

// serveManifests runs a proxy that serves the manifests of a directory as node1
// until the test ends.
func serveManifests(t *testing.T, dir string, rules ruleset.Config) {
	t.Helper()
	p, err := proxier.NewDualStackProxier(proxier.Config{
		NodeName: "node1", ExplicitSync: true,
		Rules: ruleset.Config{DetectLocal: rules.DetectLocal, NodePortAddresses: rules.NodePortAddresses},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	source, err := manifest.New(manifest.Config{Dir: dir, Handler: p})
	if err != nil {
		t.Fatal(err)
	}
	background(t, p.SyncLoop)
	background(t, func(ctx context.Context) { source.Run(ctx) })
	<-p.Synced()
	answers, err := answer.New(answer.Config{
		Proxy: p, Version: "v1.2.3", NodeEligible: func() bool { return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(answers.Close)
	listen(t, answers.Pages()...)
}

// The proxy does not remove objects that other programs add to its table.
func TestDiff(t *testing.T) {
	tabletest.NewNode(t)
	serveManifests(t, "testdata/cluster", tabletest.Rules())
	if got := run("diff"); !strings.HasPrefix(got, "Differences: 0. ") || strings.Contains(got, "exit code") {
		t.Errorf("got %s, want no differences", got)
	}
	tabletest.LoadNFT(t, "add chain ip kube-proxy x; add set ip6 kube-proxy y { type ipv6_addr; }")
	compare(t, "testdata/diff.txtar")
}

// differing answers with one step of a comparison, and then with an error.
func differing(err error) socket.Page {
	missing := keep.Difference{
		Family: nft.IPv4, Kind: keep.Missing, Object: "row cluster-ips 10.96.0.1", Owner: "default/web:http",
	}
	other := missing
	other.Owner = "default/web:dns"
	changed := keep.Difference{
		Family: nft.IPv6, Kind: keep.Changed, Object: "row service-classes x : a", Found: "row service-classes x : b",
	}
	return answer.Diff.AnsweredBy(func(_ context.Context, after string, yield func(*keep.DiffStep) error) error {
		return errors.Join(yield(&keep.DiffStep{
			Differences: []keep.Difference{missing, other, changed},
			Rows:        256, AllRows: 1000, Cursor: after + "IPv6:default/web",
		}), err)
	})
}

var web = cluster.ServiceName{Namespace: "default", Name: "web"}

// servicesPage answers with a Service, and then with an error.
func servicesPage(service table.ServiceView, err error) socket.Page {
	service.ServiceName = web
	return answer.Services.AnsweredBy(
		func(_ context.Context, _ cluster.ServiceName, yield func(*table.ServiceView) error) error {
			return errors.Join(yield(&service), err)
		})
}

// If one family does not answer, the Services of the other one are listed.
func TestServicesOfOneFamily(t *testing.T) {
	tabletest.NewNode(t)
	listen(t, servicesPage(table.ServiceView{}, errors.New("IPv6: busy")))
	got := run("services -o yaml")
	listed := strings.Contains(got, "name: web") && strings.Contains(got, "IPv6: busy")
	if !listed || !strings.HasSuffix(got, "exit code 1\n") {
		t.Errorf("got %s, want a Service, an error and exit code 1", got)
	}
}

// halfRestricted returns a Service of which one family has no source range.
func halfRestricted() table.ServiceView {
	frontend := func(family nft.Family, addr string) table.FrontendView {
		return table.FrontendView{
			Family: family, Kind: ruleset.LoadBalancerIP, Address: netip.MustParseAddr(addr), Port: 80,
			State: table.Served,
		}
	}
	return table.ServiceView{
		Restricted: true, SourceRanges: tabletest.Prefixes("198.51.100.0/24"),
		Ports: []table.PortView{{
			Protocol:  cluster.TCP,
			Frontends: []table.FrontendView{frontend(nft.IPv4, "192.0.2.10"), frontend(nft.IPv6, "2001:db8::10")},
		}},
	}
}

// Source ranges of one family do not restrict the other one.
func TestSourceRangesOfOneFamily(t *testing.T) {
	tabletest.NewNode(t)
	listen(t, statusPage(answer.ProxyStatus{}), servicesPage(halfRestricted(), nil))
	if got := run("services"); strings.Count(got, "; only for clients in 198.51.100.0/24") != 1 {
		t.Errorf("got %s, want one restricted address", got)
	}
	if got := run("doctor"); !strings.Contains(got, "- default/web: 2001:db8::10\n") {
		t.Errorf("got %s, want an unrestricted address", got)
	}
}

// A comparison that ends early names the cursor at which it can continue.
func TestDiffEndsEarly(t *testing.T) {
	for name, err := range map[string]error{"ended": nil, "failed": errors.New("failed")} {
		t.Run(name, func(t *testing.T) {
			tabletest.NewNode(t)
			listen(t, differing(err))
			compare(t, "testdata/diff-"+name+".txtar")
		})
	}
	t.Run("no proxy", func(t *testing.T) {
		tabletest.NewNode(t)
		expect(t, "diff", "no running proxy was found", 2)
	})
}
