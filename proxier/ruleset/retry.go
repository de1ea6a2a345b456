package ruleset

import (
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// The first packet of a connection draws an endpoint, and connection tracking
// remembers it. If the endpoint is dead, the client repeats its first packet,
// and each of them goes to the same endpoint. Therefore an entry of connection
// tracking without an answer lives for Config.RetryAfter only where a draw can
// have another result: then the repeated packet draws again. A draw of one
// endpoint, hashes and session affinity would have the same result, and the
// answer of a slow endpoint would meet no entry.
//
// The kernel has no such timeouts that nft can write for SCTP. Its default for
// an INIT without an answer is 3 s, after which a client repeats the INIT.

const (
	// MaxRetryAfter is the maximum of Config.RetryAfter, less than any default
	// of the kernel: nft cannot load an object without a timeout of its own.
	MaxRetryAfter = time.Minute
	// retryUDP is how long a UDP flow without an answer keeps its endpoint, in
	// seconds. The resolver of glibc repeats a query after 5 s.
	retryUDP = 3
	// portDNS is the port of service ports whose UDP flows draw again.
	portDNS = 53
)

// retries reports whether connections to a service port without an answer draw
// another endpoint: except those of UDP, among which are flows in one direction
// only, to other ports than that of DNS.
func retries(svc *cluster.Service, port cluster.ServicePort) bool {
	switch svc.Retry {
	case cluster.RetryOn:
		return true
	case cluster.RetryOff:
		return false
	}
	return port.Protocol != cluster.UDP || port.Port == portDNS
}

// after returns the chain to which a chain goes that draws one of n rows.
func (c *Config) after(to pick, d draw, n int) string {
	switch {
	case n == 1:
		return to.chain
	case c.RetryAfter > 0 && (d == random || d == weighted):
		return to.retry
	}
	return to.drawn
}

// Timeouts are timeouts of connection tracking of this network namespace, in
// seconds.
type Timeouts struct{ TCP, UDP nft.TimeoutPolicy }

// SetTimeouts sets the timeouts of connections that have an answer, which are
// part of each Program that is made later. Those that are 0 are copied by the
// kernel when it adds the objects.
func (r *Ruleset) SetTimeouts(t Timeouts) { r.timeouts = t }

// ctTimeouts returns the timeouts of connections whose endpoint was drawn:
//
//	ct timeout retry-tcp { protocol tcp; policy = { syn_sent : 1, syn_recv : 60, … } }
//	ct timeout retry-udp { protocol udp; policy = { unreplied : 3, replied : 120 } }
func (p *program) ctTimeouts() []*nft.CtTimeout {
	tcp := &nft.CtTimeout{Name: "retry-tcp", Protocol: uint8(cluster.TCP), Policy: p.timeouts.TCP}
	udp := &nft.CtTimeout{Name: "retry-udp", Protocol: uint8(cluster.UDP), Policy: p.timeouts.UDP}
	tcp.Policy[0], udp.Policy[0] = uint32(p.config.RetryAfter/time.Second), retryUDP
	return []*nft.CtTimeout{tcp, udp}
}

// retry returns the chains for draws that are repeated. Connections of other
// protocols pass the statements. `retry` is
//
//	ct timeout set "retry-tcp" ct timeout set "retry-udp" goto drawn
func (p *program) retry() (chains []*nft.Chain) {
	if p.config.RetryAfter == 0 {
		return nil
	}
	timeouts := p.ctTimeouts()
	for _, to := range picks() {
		chains = append(chains, &nft.Chain{Name: to.retry, Rules: []nft.Rule{
			nft.NewRule(nft.SetCtTimeout(timeouts[0]), nft.SetCtTimeout(timeouts[1]), nft.Goto(to.drawn)),
		}})
	}
	return chains
}
