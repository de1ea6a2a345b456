package result

import (
	"fmt"
	"time"

	"github.com/nftproxy/nftproxy/test/apiserver/benchmark"
)

// What rules there are. Those of a file have its name.
const (
	None     = "none"
	Static   = "static"
	Upstream = benchmark.Upstream
	Product  = benchmark.Product
)

// Variant is what rules a packet meets.
type Variant struct {
	Rules    string `json:"rules"`
	Services int    `json:"services,omitempty"` // of a proxy
}

// String names the variant.
func (v Variant) String() string {
	switch {
	case v.Rules == None:
		return "no rules"
	case v.Rules == Static:
		return "static rule"
	case v.Services == 0:
		return v.Rules
	}
	return fmt.Sprintf("%s, %d Services", v.Rules, v.Services)
}

// The paths that connections take.
const (
	FromNode = "node" // the client is the node itself
	FromPod  = "pod"  // the client is behind the node
)

// Paths are all of them, in the order in which they are shown.
func Paths() []string { return []string{FromNode, FromPod} }

// The kinds of traffic. All but the established ones are new connections.
const (
	TCP            = "TCP"
	UDP            = "UDP"
	KnownClient    = "affinity, known client" // TCP
	NewClient      = "affinity, new client"   // TCP
	EstablishedTCP = "established TCP"
	EstablishedUDP = "established UDP"
)

// Case is what is measured of a variant.
type Case struct {
	Path    string `json:"path"`
	Traffic string `json:"traffic"`
}

// String names the case.
func (c Case) String() string { return c.Traffic + " from " + c.Path }

// Affinity reports whether the Service has session affinity.
func (c Case) Affinity() bool {
	return c.Traffic == KnownClient || c.Traffic == NewClient
}

// Established reports whether the traffic consists of requests over a flow that
// exists already, rather than of new connections.
func (c Case) Established() bool {
	return c.Traffic == EstablishedTCP || c.Traffic == EstablishedUDP
}

// Cases returns all cases in the order in which they are shown.
func Cases() (all []Case) {
	for _, path := range Paths() {
		for _, traffic := range []string{TCP, UDP, KnownClient, NewClient, EstablishedTCP, EstablishedUDP} {
			all = append(all, Case{path, traffic})
		}
	}
	return all
}

// Sample is one measurement of a case of an instance of a variant.
type Sample struct {
	Variant
	Case
	Instance  int
	Latencies []time.Duration
	PerSecond float64 // 0 if it was not measured
}

// Round is one measurement of everything.
type Round []Sample
