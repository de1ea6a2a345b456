package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/kernel"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// checkKernel checks the version of the kernel and the privileges of this
// process.
func checkKernel(context.Context, *host) Finding {
	if err := kernel.Check(); err != nil {
		return fail(err.Error(), "run Linux 5.13 or later with nf_tables, and nftproxy with CAP_NET_ADMIN")
	}
	return ok("Linux " + kernel.Release() + " with nf_tables")
}

// checkHash checks that the kernel can hash the addresses of clients.
func checkHash(context.Context, *host) Finding {
	err := kernel.CheckHash()
	switch {
	case err == nil:
		return ok("the kernel can hash the addresses of clients")
	case errors.Is(err, kernel.ErrNoHash):
		return info(err.Error()+": Services with the annotation "+translate.AnnotationBalance+
			" select endpoints at random", "load the module nft_hash, or use a kernel that has it (CONFIG_NFT_HASH), "+
			"and restart nftproxy")
	}
	return unknown(err)
}

// checkTimeouts checks that rules can set timeouts of connection tracking.
func checkTimeouts(context.Context, *host) Finding {
	err := kernel.CheckTimeouts()
	switch {
	case err == nil:
		return ok("the kernel can give a new connection another endpoint if the first one does not answer")
	case errors.Is(err, kernel.ErrNoTimeouts):
		return info(err.Error()+": new connections to an endpoint that does not answer fail", "use a kernel with "+
			"CONFIG_NF_CONNTRACK_TIMEOUT, and restart nftproxy")
	}
	return unknown(err)
}

// checkTable checks that the tables exist, are in use, belong to nftproxy, and
// are not damaged by another program.
func checkTable(_ context.Context, n *host) Finding {
	if outages := n.outages(); len(outages) > 0 {
		return fail("another program damages the table kube-proxy, and new connections can fail", "end the other "+
			"program: a second service proxy, or a firewall that runs `nft flush ruleset`; the log of nftproxy "+
			"names the process").With(outages...)
	}
	var present, absent []string
	for _, f := range families() {
		k, err := node.OpenKernel(f)
		switch {
		case err == nil:
			present = append(present, f.Name())
			k.Close()
		case errors.Is(err, node.ErrNoTable):
			absent = append(absent, f.Name())
		case errors.Is(err, node.ErrPermission):
			return unknown(err)
		default:
			return fail(err.Error(), "start nftproxy: it writes its tables and takes over the tables of kube-proxy")
		}
	}
	switch {
	case len(present) == 0:
		return warn("no table kube-proxy: no proxy in mode nftables has run in this network namespace",
			"start nftproxy, or run this command in the network namespace of the node")
	case len(absent) > 0:
		return info("a table for "+present[0]+" only: no proxy has served "+absent[0], "")
	}
	return ok("tables for IPv4 and IPv6")
}

// outages describes the damage that the proxy does not repair at once.
func (n *host) outages() (all []string) {
	if n.Proxy == nil {
		return nil
	}
	for i := range n.Proxy.Families {
		f := &n.Proxy.Families[i]
		if f.Outage == nil {
			continue
		}
		repairs := 0
		for _, count := range f.Repairs {
			repairs += count
		}
		state := "it is repaired each time"
		if since := f.Outage.Since; !since.IsZero() {
			state = fmt.Sprintf("not repaired for %s", n.age(since))
		}
		all = append(all, fmt.Sprintf("%s: %s; %s (repairs %d, rewrites %d)", f.Family.Name(), f.Outage.What, state,
			repairs, f.Rewrites))
	}
	return all
}

// endpointRows returns some rows of the map of endpoints.
func endpointRows(f nft.Family) ([]nft.Row, error) { return sampleRows(f, ruleset.OwnSet) }

// sampleRows returns some rows of a set, none if it does not exist.
func sampleRows(f nft.Family, name string) ([]nft.Row, error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	table := &nft.Table{Family: f, Name: ruleset.TableName}
	set, err := conn.FindSet(table, name)
	if err != nil || set == nil {
		return nil, err
	}
	return nft.SampleRows(table, set)
}

// checkFeatures checks with a transaction that the kernel accepts the rules of
// the proxy. The kernel aborts the transaction.
func checkFeatures(context.Context, *host) Finding {
	var refused []string
	for _, f := range families() {
		problems, err := refusals(f)
		if err != nil {
			return unknown(err)
		}
		for _, p := range problems {
			refused = append(refused, fmt.Sprintf("%s: %s %s: %v", f.Name(), p.Op, p.Object, p.Errno))
		}
	}
	if len(refused) == 0 {
		return ok("the kernel accepts the rules of nftproxy")
	}
	return fail("the kernel refuses rules of nftproxy",
		"load the modules nft_numgen, nft_fib_ipv4, nft_fib_ipv6, nft_reject_ipv4, nft_reject_ipv6, nft_ct, "+
			"nft_chain_nat and nft_masq, or use a kernel that has them (CONFIG_NFT_*)").With(refused...)
}

// refusals returns what the kernel refuses of everything that the table of a
// family can have: the table of a Service with session affinity, NodePorts and
// source ranges, under another name.
func refusals(f nft.Family) ([]nft.Problem, error) {
	rules, err := ruleset.New(ruleset.Config{LocalhostNodePorts: true}, f) // timeouts have a check of their own
	if err != nil {
		return nil, err
	}
	self, plan, err := probePlan(rules)
	if err != nil {
		return nil, err
	}
	rows := rules.Rows(nil, plan)
	sources := rules.SourceSets(func(s *nft.Set) bool {
		return slices.ContainsFunc(rows, func(r nft.Row) bool { return r.Set == s })
	})
	program := rules.MakeProgram(self, sources...)
	table := program.Table
	table.Name = "nftproxy-probe"
	table.Sets = append(table.Sets, rules.AffinitySet(plan))
	table.Chains = append(table.Chains, rules.Chains(plan)...)
	for _, class := range ruleset.Balancers(2) {
		chain, row := rules.Balancer(class)
		table.Chains, rows = append(table.Chains, chain), append(rows, row)
	}
	b := nft.NewBatch(table)
	b.AddProgram()
	for _, row := range slices.Concat(program.Rows, rows) {
		b.AddRow(row)
	}
	return kernel.Probe(b)
}

// probePlan returns a plan that uses all kinds of rules.
func probePlan(rules *ruleset.Ruleset) (*cluster.Node, *ruleset.Plan, error) {
	f := rules.Family()
	addr := netip.MustParseAddr("192.0.2.1")
	if f == nft.IPv6 {
		addr = netip.MustParseAddr("2001:db8::1")
	}
	self := &cluster.Node{Name: "probe", IPs: []netip.Addr{addr}}
	port := cluster.ServicePort{Name: "probe", Protocol: cluster.TCP, Port: 80, NodePort: 30000}
	service := &cluster.Service{
		Name: cluster.ServiceName{Namespace: "probe", Name: "probe"}, Families: []nft.Family{f},
		ClusterIPs: []netip.Addr{addr.Next()}, LoadBalancerIPs: []netip.Addr{addr.Next().Next()},
		SourceRanges: []netip.Prefix{netip.PrefixFrom(addr, addr.BitLen()-8)}, AffinityTimeout: time.Hour,
		ExternalPolicy: cluster.PolicyLocal, Ports: []cluster.ServicePort{port},
	}
	endpoint := &cluster.Endpoint{
		EndpointKey: cluster.EndpointKey{Addr: addr}, Node: self.Name, Ready: true, Serving: true,
		Ports: []cluster.EndpointPort{{Name: port.Name, Protocol: port.Protocol, Port: 8080}},
	}
	plan, err := rules.MakePlan(&ruleset.PlanInput{
		Node: self, Service: service, Port: port, Endpoints: []*cluster.Endpoint{endpoint},
		Frontends: ruleset.FrontendsOf(f, service, port),
	})
	return self, plan, err
}

const (
	rowsCheck = "rows"
	// rowsTime is the time of checkRows unless all rows are compared.
	rowsTime = time.Second
	// listedRows is the number of differences that are listed then.
	listedRows = 10
)

// checkRows compares the tables in the kernel with those that the proxy wants,
// row by row.
func checkRows(ctx context.Context, n *host) Finding {
	if n.Proxy == nil || n.Differences == nil {
		return n.withoutProxy()
	}
	if !n.AllRows {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rowsTime)
		defer cancel()
	}
	var last keep.DiffStep
	var found []keep.Difference
	seen := make(map[keep.Difference]bool)
	for step, err := range n.Differences(ctx) {
		if err != nil && ctx.Err() == nil && len(found) == 0 {
			return unknown(err)
		}
		if err != nil {
			break
		}
		for _, d := range step.Differences {
			same := d
			same.Owner = "" // several service ports can have one row
			if !seen[same] {
				seen[same] = true
				found = append(found, d)
			}
		}
		last = *step
	}
	compared := fmt.Sprint(last.Rows)
	if !last.Done {
		compared += fmt.Sprintf(" of about %d: nftproxy doctor --rows compares all", last.AllRows)
	}
	if len(found) == 0 {
		return ok("the kernel has what the proxy wants (rows that were compared: " + compared + ")")
	}
	var lines []string
	for i, d := range found {
		if i == listedRows && !n.AllRows {
			lines = append(lines, fmt.Sprintf("and %d more: nftproxy doctor --rows lists all", len(found)-i))
			break
		}
		lines = append(lines, describe(&d))
	}
	return warn(fmt.Sprintf("the tables in the kernel differ from what the proxy wants (differences: %d, rows that "+
		"were compared: %s)", len(found), compared), remedyOf(found)).With(lines...)
}

// describe returns a difference in one line.
func describe(d *keep.Difference) string {
	text := fmt.Sprintf("%s %s: %s", d.Family.Name(), d.Kind, d.Object)
	if d.Owner != "" {
		text += fmt.Sprintf(" (%s)", d.Owner)
	}
	if d.Found != "" {
		text += "; found: " + d.Found
	}
	return text
}

// remedyOf returns what repairs differences.
func remedyOf(found []keep.Difference) string {
	if slices.ContainsFunc(found, func(d keep.Difference) bool { return d.Kind != keep.Extra }) {
		return "wait for the repair: the proxy verifies its tables when another program commits, and then compares " +
			"all rows in the background; if the differences return, end the program that changes the table"
	}
	return "restart the proxy: it removes extra objects when it writes the whole table"
}
