package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/notify"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Trace is a running trace of packets. It must not be used by several
// goroutines at the same time.
type Trace struct {
	owner    *nft.Conn // of the tables
	tracer   *notify.Tracer
	kernels  map[nft.Family]*node.Kernel
	chains   map[chain][]nft.Rule // of all tables that packets passed
	passages *passages
	local    map[Frontend]string // endpoints on this node (see Selection)
	flows    flows
	ended    []*Packet
	names    map[uint32]string // of interfaces
}

// chain identifies a chain of any table.
type chain struct {
	family      nft.Family
	table, name string
}

// Open starts a trace of selected packets. The error is for people. It is
// node.ErrNoTable if no proxy has a table of the selected families.
func Open(selection Selection) (*Trace, error) {
	t := &Trace{
		kernels: make(map[nft.Family]*node.Kernel), chains: make(map[chain][]nft.Rule),
		names: make(map[uint32]string), flows: make(flows), local: selection.Endpoints,
	}
	if err := t.open(selection); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Trace) open(selection Selection) (err error) {
	if t.owner, err = nft.Open(); err != nil { // the first socket gets the process id as its port
		return err
	}
	if t.tracer, err = notify.OpenTracer(); err != nil {
		return permission(err)
	}
	port, err := t.owner.Port()
	if err != nil {
		return err
	}
	t.passages = newPassages(tableName(port))
	var missing error
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		if !selection.concerns(f) {
			continue
		}
		err := t.addTable(f, &selection)
		if errors.Is(err, node.ErrNoTable) {
			missing = cmp.Or(missing, err)
			continue
		}
		if err != nil {
			return err
		}
	}
	if len(t.kernels) > 0 {
		return nil
	}
	return cmp.Or(missing, errors.New("no packet can have this source and this destination"))
}

// addTable opens the proxy's table of a family and adds the table that traces.
func (t *Trace) addTable(f nft.Family, selection *Selection) error {
	kernel, err := node.OpenKernel(f)
	if err != nil {
		return err
	}
	t.kernels[f] = kernel
	table, rows := tableOf(f, selection, t.passages.table)
	b := nft.NewBatch(table)
	b.AddProgram()
	for _, row := range rows {
		b.AddRow(row)
	}
	return permission(t.owner.Commit(b))
}

// permission returns an error that names the cause of a refusal.
func permission(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return errors.New("no permission to trace packets: CAP_NET_ADMIN is required")
	case nft.LacksOwners(err):
		return errors.New("tracing packets requires Linux 5.12 or later, for tables that end with their process")
	}
	return err
}

// Close ends the trace. The kernel deletes its tables.
func (t *Trace) Close() error {
	var errs []error
	if t.owner != nil {
		errs = append(errs, t.owner.Close())
	}
	if t.tracer != nil {
		errs = append(errs, t.tracer.Close())
	}
	for _, kernel := range t.kernels {
		errs = append(errs, kernel.Close())
	}
	return errors.Join(errs...)
}

// Lost returns the number of messages about packets that were lost because the
// kernel sent them faster than they were read.
func (t *Trace) Lost() (int, error) { return t.tracer.Lost() }

// Next returns the next packet whose fate is known. It returns the error of the
// context if that ends before, after the packets that still waited for a reply.
func (t *Trace) Next(ctx context.Context) (*Packet, error) {
	const interval = 50 * time.Millisecond // between checks of the context
	for len(t.ended) == 0 {
		if err := ctx.Err(); err != nil {
			if t.ended = t.flows.expire(time.Now(), 0); len(t.ended) == 0 {
				return nil, err
			}
			break
		}
		events, err := t.tracer.Receive(interval)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		for _, e := range events {
			t.add(e, now)
		}
		t.end(t.passages.expire(now), now)
		t.ended = append(t.ended, t.flows.expire(now, replyTime)...)
	}
	k := t.ended[0]
	t.ended = slices.Delete(t.ended, 0, 1)
	return k, nil
}

// add adds an event of a traced packet or of a reply.
func (t *Trace) add(e notify.TraceEvent, now time.Time) {
	kind, reply, ok := t.passages.replyOf(e)
	if !ok {
		t.end(t.passages.add(e, now), now)
		return
	}
	if reply == nil { // messages were lost
		return
	}
	if k := t.flows.replied(kind, reply, now); k != nil {
		t.ended = append(t.ended, k)
	}
}

// end adds the packets of passages that ended, unless they wait for a reply.
func (t *Trace) end(passages []*passage, now time.Time) {
	for _, p := range passages {
		if k := t.packet(p); !t.flows.take(k, now) {
			t.ended = append(t.ended, k)
		}
	}
}

// packet returns the packet of a passage that ended.
func (t *Trace) packet(p *passage) *Packet {
	kernel := t.kernels[nft.FamilyOf(p.first.Source.Addr())]
	packet := packetOf(p, func(e notify.TraceEvent) node.ChainRule { return t.rule(kernel, e) })
	packet.Interface = t.interfaceName(p.first.In)
	if packet.Final != nil {
		packet.Final.Interface = t.interfaceName(p.last.Out)
	}
	packet.protocol = cluster.Protocol(p.first.Protocol)
	if name, ok := t.local[Frontend{packet.Destination, packet.protocol}]; ok {
		packet.atEndpoint(name)
	}
	result, err := explain.InKernel(kernel, packet.Query())
	if err != nil { // such as a rule that another program added to the table
		result = &explain.Result{Answer: err.Error()}
	}
	packet.explained(result)
	if packet.Reason.Code == ruleset.Untranslated {
		result.AddOthers(kernel, packet.Query())
		packet.untracked(result.OtherTables)
	}
	packet.locate(p, kernel, result)
	packet.Answer = packet.answer()
	return packet
}

// rule returns the rule of an event. It reads the chain unless the rule was
// there before. A rule that was deleted meanwhile has no text.
func (t *Trace) rule(kernel *node.Kernel, e notify.TraceEvent) (r node.ChainRule) {
	var err error
	c := chain{e.Family, e.Table, e.Chain}
	is := func(rule nft.Rule) bool { return rule.Handle == e.Rule }
	i := slices.IndexFunc(t.chains[c], is)
	if i < 0 {
		t.chains[c], err = kernel.Conn.Rules(&nft.Table{Family: e.Family, Name: e.Table}, e.Chain)
		i = slices.IndexFunc(t.chains[c], is)
	}
	switch {
	case err != nil:
		r.Text = fmt.Sprintf("a rule that cannot be read (handle %d): %v", e.Rule, err)
	case i < 0:
		r.Text = fmt.Sprintf("a rule that was deleted meanwhile (handle %d)", e.Rule)
	default:
		r = node.Describe(kernel.Table.Family, t.chains[c][i])
		r.Text = t.chains[c][i].Text(e.Family)
	}
	return r
}

// interfaceName returns the name of an interface, "" for none.
func (t *Trace) interfaceName(index uint32) string {
	if index == 0 {
		return ""
	}
	if name, ok := t.names[index]; ok {
		return name
	}
	name := fmt.Sprintf("interface %d", index) // which was removed meanwhile
	if found, err := net.InterfaceByIndex(int(index)); err == nil {
		name = found.Name
	}
	t.names[index] = name
	return name
}
