package doctor_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/doctor"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
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
func healthy(t testing.TB, rules ruleset.Config) { healthyWith(t, rules, 0) }

// healthyWith is like healthy. As many Services have an endpoint that is a host
// of the node's network.
func healthyWith(t testing.TB, rules ruleset.Config, hosts int) {
	t.Helper()
	tabletest.NewNamespace(t)
	sh(t, `ip -batch - <<-END
			link set lo up
			link add uplink type veth peer name far
			link set far up
			link set uplink up
			link add pods type veth peer name pod
			link set pod up
			link set pods up
			addr add 172.30.0.11/24 dev uplink
			route add default via 172.30.0.1
			addr add fd00:30::11/64 dev uplink nodad
			route add default via fd00:30::1
			addr add 10.244.1.1/24 dev pods
			addr add fd00:244:1::1/64 dev pods nodad
			neigh add 10.244.1.5 lladdr 02:00:00:00:00:05 dev pods
		END
		echo 1 >/proc/sys/net/ipv4/ip_forward
		echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
		for i in all uplink far pods pod; do echo 0 >/proc/sys/net/ipv4/conf/$i/rp_filter; done`)
	tables, err := table.New(table.Config{Rules: rules}, nft.IPv4, nft.IPv6)
	must.NoError(t, err)
	for _, table := range tables {
		defer table.Close()
		must.NoError(t, table.Setup())
		tabletest.PassSample(table)
		for i := range hosts {
			host := tabletest.Service(fmt.Sprint("host", i), fmt.Sprint("10.96.1.", i), nil)
			table.SetService(host)
			tabletest.SetEndpoint(table, host.Name, tabletest.Endpoint(fmt.Sprint("172.30.0.", 20+i)))
		}
		tabletest.Sync(t, table)
	}
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

// Each finding refers to a section of the documentation, which lists the checks
// that are not fast.
func TestDocumentation(t *testing.T) {
	tabletest.NewNamespace(t)
	page, err := os.ReadFile("../../../../docs/checks.md")
	must.NoError(t, err)
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

// Without privileges only the check of the kernel fails. The others do not
// claim that something is wrong with the rules.
func TestWithoutPrivileges(t *testing.T) {
	var r *doctor.Report
	nstest.Unprivileged(t, func() { r = doctor.Run(t.Context(), doctor.Config{}) })
	wanted := map[string]doctor.Result{
		"kernel": doctor.Fail, "kernel-features": doctor.Skipped, "table": doctor.Skipped,
	}
	for _, f := range r.Findings {
		switch want := wanted[f.Check]; want {
		case "", f.Result:
		default:
			t.Errorf("%s: got %s: %s, want %s", f.Check, f.Result, f.Reason, want)
		}
	}
}
