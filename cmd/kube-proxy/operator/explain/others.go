package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// othersTime limits the time in which AddOthers follows packets, after those of
// the first outcome: tables can have thousands of rules. Then it takes longer
// by those of one outcome at most.
const othersTime = time.Second

// AddOthers adds what the tables of other programs do to the packets of the
// outcomes, or their answers. If they stop the packets of all outcomes, this is
// the answer. What it cannot find out is a note.
func (r *Result) AddOthers(k *node.Kernel, q Query) {
	if q.Source.IsLoopback() { // the proxy itself connects to the endpoint, from another address
		return
	}
	var stops []node.Effect // the first one of each outcome
	_, err := k.Conn.Snapshot(func() (err error) {
		r.OtherTables = nil
		stops, err = r.follow(k, q)
		return err
	})
	if err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("OTHER TABLES is not complete: %v", err))
	}
	switch r.Stopped = len(stops); r.Stopped {
	case 0:
	case len(r.Outcomes):
		stop := reasonOf(stops[0])
		r.Answer = fmt.Sprintf("%s%s; nftproxy alone: %s", stop.Text, stop.CodeText(), r.Answer)
		r.Remedy = stop.Remedy
	default:
		r.Answer += fmt.Sprintf("; other tables stop packets to %d of them", r.Stopped)
	}
}

// follow adds the effects on the packets of the outcomes. It returns those that
// end their ways, and an error if not all effects are known.
func (r *Result) follow(k *node.Kernel, q Query) (stops []node.Effect, err error) {
	tables, err := k.Tables()
	if err != nil {
		return nil, err
	}
	mark, _ := Mark(k, q)
	var read time.Time // when all chains were read
	for i := range r.Outcomes {
		if i == 1 {
			read = time.Now()
		}
		if i > 1 && time.Since(read) > othersTime {
			return stops, fmt.Errorf("it is about %d of %d endpoints, because the tables have many rules", i,
				len(r.Outcomes))
		}
		c := q.connection(k, &r.Outcomes[i])
		c.Mark = mark
		to := c.Endpoint
		if !to.IsValid() {
			to = c.Service
		}
		found, err := tables.Follow(fmt.Sprintf("%s → %s", q.Source, to), tables.Journeys(&c))
		if err != nil {
			return stops, err
		}
		for _, e := range found {
			r.OtherTables = node.Add(r.OtherTables, e)
		}
		if at := slices.IndexFunc(found, node.Effect.Ends); at >= 0 {
			stops = append(stops, found[at])
		}
	}
	return stops, tables.Unseen
}

// connection returns the connection of an outcome.
func (q *Query) connection(k *node.Kernel, o *Outcome) node.Connection {
	c := node.Connection{
		Client: netip.AddrPortFrom(q.Source, node.ClientPort), Service: q.Destination, Protocol: uint8(q.Protocol),
		In: q.arrival(k),
	}
	switch o.Action {
	case ToEndpoint:
		c.Endpoint = o.Endpoint
	case Pass:
		c.Endpoint = q.Destination
	default:
		return c
	}
	to := c.Endpoint.Addr()
	if !k.IsLocal(to) {
		c.Out.Name, c.Out.Unknown = k.Interface(to)
	}
	if o.Masqueraded {
		c.Masqueraded, _ = k.NodeSource(to)
	}
	return c
}

// arrival returns the interface on which the packet of a query arrives.
func (q *Query) arrival(k *node.Kernel) (in walk.Interface) {
	switch {
	case q.Interface != "":
		in.Name = q.Interface
	case q.From == node.FromPod:
		return k.PodInterface(q.Source)
	case !k.IsLocal(q.Source):
		in.Name, in.Unknown = k.Interface(q.Source)
	}
	return in
}

// reasonOf returns an effect that ends the way of all packets as a reason.
func reasonOf(e node.Effect) ruleset.Reason {
	code, text := ruleset.OtherTable, e.Table+" drops the packet, or its answer"
	if e.NetworkPolicy != "" {
		code = ruleset.NetworkPolicy
	}
	switch e.Action {
	case node.Translates:
		text = e.Table + " translates the packet before nftproxy can"
	case node.Untracks:
		text = e.Table + " excludes the packet from connection tracking, so nftproxy does not translate it"
	}
	return code.With(text)
}

// others lists what other tables do.
func (p printer) others(r *Result) {
	if len(r.OtherTables) == 0 {
		return
	}
	fmt.Fprint(p, "\nOTHER TABLES\n")
	for i, e := range r.OtherTables {
		if i == maxListed && !p.wide {
			fmt.Fprintf(p, "  and %d more: -o wide lists all\n", len(r.OtherTables)-i)
			return
		}
		fmt.Fprintf(p, "  %s\n", e)
	}
}
