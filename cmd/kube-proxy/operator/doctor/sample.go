package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// sample is a connection to a Service of the table.
type sample struct {
	node.Connection
	description string
}

// target is a row of the table that leads to an endpoint.
type target struct {
	targetKind
	service, endpoint netip.AddrPort
	out               string // the interface of the route to the endpoint, "" for this node
}

// targetKind is a kind of endpoints: of a protocol, and on this node, in a pod
// of this node, or elsewhere.
type targetKind struct {
	protocol      uint8
	toNode, inPod bool
}

// maxTargets is the number of endpoints of each kind that are tried.
const maxTargets = 8

// sampler makes samples from a table in the kernel.
type sampler struct {
	*node.Kernel
	pods    []string // the interfaces of pods of this node
	targets map[targetKind][]target
}

// samplesOf returns connections to endpoints of some Services.
func samplesOf(k *node.Kernel) ([]sample, error) {
	s, err := newSampler(k)
	if err != nil {
		return nil, err
	}
	return s.samples(), nil
}

func newSampler(k *node.Kernel) (*sampler, error) {
	var seen seenPods
	if _, err := seen.findInterfaces(); err != nil {
		return nil, err
	}
	s := &sampler{k, seen.interfaces, make(map[targetKind][]target)}
	rows, err := endpointRows(k.Table.Family)
	for _, row := range rows {
		if t, ok := s.targetOf(row); ok && len(s.targets[t.targetKind]) < maxTargets {
			s.targets[t.targetKind] = append(s.targets[t.targetKind], t)
		}
	}
	return s, err
}

// targetOf describes the target of a row of service-targets. ok is false if
// there is no route to its endpoint.
func (s *sampler) targetOf(row nft.Row) (t target, ok bool) {
	from, to, ok := ruleset.TargetOf(s.Table.Family, row)
	if !ok {
		return t, false
	}
	t = target{service: netip.AddrPortFrom(from.Addr, from.Port), endpoint: to}
	t.protocol = uint8(from.Proto)
	typ, err := s.RouteType(to.Addr())
	if t.toNode = typ == unix.RTN_LOCAL; t.toNode || err != nil {
		return t, err == nil
	}
	t.out, err = s.Interface(to.Addr())
	t.inPod = slices.Contains(s.pods, t.out)
	return t, err == nil
}

// samples returns packets from a pod, from outside and from this node to
// endpoints of different kinds.
func (s *sampler) samples() (all []sample) {
	for _, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		for _, kind := range []targetKind{{inPod: true}, {}, {toNode: true}} {
			kind.protocol = protocol
			for _, client := range []client{s.fromPod, s.fromItself, s.fromOutside, s.fromNode} {
				if sample, ok := s.first(s.targets[kind], client); ok {
					all = append(all, sample)
				}
			}
		}
	}
	return all
}

// client returns the packet of a kind of client to a target. ok is false if
// there is no such client.
type client func(t target) (s sample, ok bool)

// first returns a packet to the first of the targets that the proxy's rules
// translate.
func (s *sampler) first(targets []target, from client) (found sample, ok bool) {
	for _, t := range targets {
		if found, ok = from(t); !ok {
			continue
		}
		if ok = s.translated(&found); ok {
			return found, true
		}
	}
	return found, false
}

// translated sets what the proxy's rules do to a sample. It returns false if
// they do not translate it.
func (s *sampler) translated(found *sample) bool {
	mark, ok := explain.Mark(s.Kernel, explain.Query{
		Destination: found.Service, Protocol: cluster.Protocol(found.Protocol),
		Source: found.Client.Addr(), Interface: found.In.Name,
	})
	found.Mark = mark
	return ok
}

// sampleTo returns a packet to a target.
func sampleTo(t target, source netip.Addr, in walk.Interface, client string) sample {
	return sample{
		node.Connection{
			Client: netip.AddrPortFrom(source, node.ClientPort), Service: t.service, Endpoint: t.endpoint,
			Protocol: t.protocol, In: in, Out: walk.Interface{Name: t.out},
		},
		fmt.Sprintf("%s %s → %s (%s of %s)",
			client, source, t.endpoint, cluster.Protocol(t.protocol), t.service),
	}
}

// fromPod is a packet of a pod: of another endpoint on this node, or else of a
// hypothetical pod.
func (s *sampler) fromPod(t target) (sample, bool) {
	for _, pod := range s.targets[targetKind{protocol: t.protocol, inPod: true}] {
		if pod.endpoint.Addr() != t.endpoint.Addr() {
			return sampleTo(t, pod.endpoint.Addr(), walk.Interface{Name: pod.out}, "pod"), true
		}
	}
	addr, ok, err := s.PodAddress()
	return sampleTo(t, addr, s.PodInterface(addr), "a pod"), ok && err == nil
}

// fromItself is a packet of the pod that is the endpoint.
func (s *sampler) fromItself(t target) (found sample, ok bool) {
	addr := t.endpoint.Addr()
	found = sampleTo(t, addr, walk.Interface{Name: t.out}, "pod")
	found.Masqueraded, _ = s.NodeSource(addr)
	return found, t.inPod
}

// fromOutside is a packet that arrives by the default route.
func (s *sampler) fromOutside(t target) (sample, bool) {
	addr := node.Outside(s.Table.Family)
	name, err := s.Interface(addr)
	return sampleTo(t, addr, walk.Interface{Name: name}, "outside"), err == nil && name != "lo"
}

func (s *sampler) fromNode(t target) (sample, bool) {
	addr, err := s.NodeSource(t.endpoint.Addr())
	return sampleTo(t, addr, walk.Interface{}, "this node"), err == nil && !t.toNode // packets to itself use loopback
}

// survey is the effects of other programs on sample connections.
type survey struct {
	effects []node.Effect
	tables  int      // the number of tables of nftproxy
	samples int      // the number of connections
	earlier []string // the nat chains that precede those of nftproxy
}

// followSamples follows journeys of sample connections.
func followSamples(
	ctx context.Context, samples func(*node.Kernel) ([]sample, error),
	journeys func(*node.Tables, *node.Connection) []node.Journey,
) (all survey, err error) {
	err = node.InTables(func(k *node.Kernel) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var of survey
		_, err := k.Conn.Snapshot(func() (err error) {
			of, err = followSamplesOf(k, samples, journeys)
			return err
		})
		for _, e := range of.effects {
			all.effects = node.Add(all.effects, e)
		}
		all.tables++
		all.samples += of.samples
		for _, chain := range of.earlier { // chains of family inet are found in both families
			if !slices.Contains(all.earlier, chain) {
				all.earlier = append(all.earlier, chain)
			}
		}
		return err
	})
	if errors.Is(err, node.ErrNoTable) {
		err = nil
	}
	return all, err
}

// followSamplesOf is followSamples for one family.
func followSamplesOf(
	k *node.Kernel, samples func(*node.Kernel) ([]sample, error),
	journeys func(*node.Tables, *node.Connection) []node.Journey,
) (s survey, err error) {
	tables, err := k.Tables()
	if err == nil {
		err = tables.Unseen
	}
	if err != nil {
		return s, err
	}
	all, err := samples(k)
	if err != nil {
		return s, err
	}
	s.earlier = tables.EarlierNAT()
	for _, sample := range all {
		s.samples++
		found, err := tables.Follow(sample.description, journeys(tables, &sample.Connection))
		if err != nil {
			return s, err
		}
		for _, e := range found {
			s.effects = node.Add(s.effects, e)
		}
	}
	return s, nil
}
