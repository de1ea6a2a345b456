package result

import (
	"time"

	"github.com/nftproxy/nftproxy/test/apiserver/benchmark"
	scale "github.com/nftproxy/nftproxy/test/apiserver/scale/result"
)

// FileName is that of the JSON.
const FileName = "dataplane.json"

// Result is all that came of one run of the benchmark.
type Result struct {
	Command  string            `json:"command"`
	Date     time.Time         `json:"date"`
	Machine  scale.Machine     `json:"machine"`
	Versions map[string]string `json:"versions"` // of the proxies
	// Load is the machine's load average, of one minute, before the first round: how quiet it was.
	Load      float64   `json:"loadAverage"`
	Endpoints int       `json:"endpoints"`         // of each Service
	Affinity  int       `json:"affinityEndpoints"` // of the Service with session affinity
	Figures   []*Figure `json:"figures"`
}

// Figure is what was measured of one case of a variant, in all rounds and instances.
type Figure struct {
	Variant
	Case
	Instances int `json:"instances"`
	Rounds    int `json:"rounds"`
	N         int `json:"n"` // latencies: of connections, or of requests if the flow is established
	// P50 and P90 are those of all latencies together.
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	// OfRounds is the p50 of a round, OfInstances that of an instance: how far they are apart says how far to trust P50.
	OfRounds    Spread `json:"p50OfRounds"`
	OfInstances Spread `json:"p50OfInstances"`
	// ToStatic is the p50 of a round divided by that of the static rule in the same round, ToPlain by that of a Service without session affinity
	// of the same variant. They are nil where there is nothing to compare with.
	ToStatic *Ratio `json:"p50ToStatic,omitempty"`
	ToPlain  *Ratio `json:"p50ToPlain,omitempty"`
	// PerSecond is the rate in all rounds and instances: new connections per
	// second on all processors, or, if the flow is established, requests per
	// second of one thread. It is nil if it was not measured.
	PerSecond *Spread `json:"perSecond,omitempty"`
	// PerSecondToStatic is the mean of a round's instances divided by that of the static rule.
	PerSecondToStatic *Ratio `json:"perSecondToStatic,omitempty"`
}

// Write writes the result as JSON.
func (r *Result) Write(path string) error { return benchmark.WriteJSON(path, r) }

// Read reads what Write wrote.
func Read(path string) (*Result, error) { return benchmark.ReadJSON[Result](path) }
