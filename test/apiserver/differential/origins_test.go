package differential

import (
	"cmp"
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/random"
)

// origin is a source of attempts. Its packets have single addresses, or another
// address of a pool in each attempt.
type origin struct {
	name string
	*lab.Namespace
	single     [2]netip.Addr
	pool       [2]netip.Prefix
	arrivesOn  string // interface of node1
	isThisNode bool

	clients atomic.Uint32
}

// client returns a source address. The oracle allows the same for all of a
// pool.
func (o *origin) client(f int) netip.Addr {
	if o.pool[f].IsValid() {
		size := uint32(1) << min(15, o.pool[f].Addr().BitLen()-o.pool[f].Bits())
		return lab.AddrIn(o.pool[f], 1+int(o.clients.Add(1)%(size-2)))
	}
	return o.single[f]
}

// The indexes of origins.
const (
	fromClient = iota
	fromOutside
	fromElsewhere
	fromRemotePods // of another node, behind the client
	fromPods
	fromPod1
	fromA1
	fromNode1
	fromNode1Second
)

// newOrigins returns the clients. Those with a pool are new in each attempt.
func (s *side) newOrigins() []*origin {
	pool := func(ipv4, ipv6 string) [2]netip.Prefix {
		return [2]netip.Prefix{netip.MustParsePrefix(ipv4), netip.MustParsePrefix(ipv6)}
	}
	client, node, a1, pod1 := s.Client, s.Node1.Namespace, s.pods["a1"], s.pods["pod1"]
	all := []*origin{
		fromClient:      {name: "client", Namespace: client},
		fromOutside:     {name: "outside", Namespace: client, pool: pool("172.31.0.0/17", "fd00:31::/65")},
		fromElsewhere:   {name: "elsewhere", Namespace: client, pool: pool("172.31.128.0/17", "fd00:31:0:0:8000::/65")},
		fromRemotePods:  {name: "remote pods", Namespace: client, pool: pool("10.244.3.0/24", "fd00:244:3::/64")},
		fromPods:        {name: "pods", pool: pool("10.244.1.128/25", "fd00:244:1:0:8000::/65")},
		fromPod1:        {name: "pod1"},
		fromA1:          {name: "a1", Namespace: a1.Namespace, arrivesOn: a1.HostInterface},
		fromNode1:       {name: "node1", Namespace: node},
		fromNode1Second: {name: "node1-second", Namespace: node},
	}
	for _, o := range all {
		if o.Namespace == nil {
			o.Namespace, o.arrivesOn = pod1.Namespace, pod1.HostInterface
		}
		o.arrivesOn = cmp.Or(o.arrivesOn, "eth0")
		o.isThisNode = o.Namespace == node
		o.single = [2]netip.Addr(o.Addrs())
	}
	all[fromNode1Second].single = [2]netip.Addr(random.SecondAddrs())
	return all
}

// route adds the addresses of the origins, and routes to them. The default
// route of nodes leads to the client. Endpoints of node2 answer through node1,
// even if it has kept the client's address.
func (s *side) route() (err error) {
	do := func(e error) { err = errors.Join(err, e) }
	node := s.Node1.Addrs()
	do(s.Node1.SetSysctl("net.netfilter.nf_conntrack_udp_timeout", "600")) // a step can take long
	for i, addr := range random.SecondAddrs() {
		do(s.Node1.AddAddr(netip.PrefixFrom(addr, addr.BitLen())))
		do(s.Client.ReplaceRoute(random.SecondServiceRanges()[i], node[i]))
	}
	for i, addr := range s.Client.Addrs() {
		do(s.Node2.ReplaceRoute(netip.PrefixFrom(addr, addr.BitLen()), node[i]))
		do(s.Node2.ReplaceRoute(netip.MustParsePrefix([]string{"0.0.0.0/0", "::/0"}[i]), node[i]))
	}
	for _, o := range s.origins {
		for i, prefix := range o.pool {
			if !prefix.IsValid() {
				continue
			}
			do(o.Own(prefix))
			if o.Namespace != s.Client {
				do(s.Node1.ReplaceRoute(prefix, o.Addrs()[i]))
			}
			do(o.SetSysctl("net.ipv6.ip_nonlocal_bind", "1"))
		}
	}
	return err
}
