package result

import (
	"time"

	"github.com/nftproxy/nftproxy/test/apiserver/benchmark"
)

// Result is all that came of one run of the benchmark.
type Result struct {
	Command  string            `json:"command"`
	Date     time.Time         `json:"date"`
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"` // of the proxies
	Runs     []*Run            `json:"runs"`
	// Stalls are messages of the kernel during the run about soft lockups and stalls.
	Stalls []string `json:"stalls"`
}

// Run is what was measured of one proxy at one size of the cluster.
type Run struct {
	Proxy     string `json:"proxy"`
	Services  int    `json:"services"`
	Endpoints int    `json:"endpoints"` // of each Service
	// Load is the machine's load average, of one minute, when the run began: how quiet it was.
	Load float64 `json:"loadAverage"`
	// ColdStart is from exec in an empty namespace, Restart from exec on the proxy's own table, until all rows are there.
	ColdStart Start `json:"coldStart"`
	Restart   Start `json:"restart"`
	// Idle is the CPU time that the proxy uses in a second in which nothing happens.
	Idle float64 `json:"idleCPUSeconds"`
	// Changes are of one object each, by kind.
	Changes map[Kind]*Change `json:"changes"`
	// Burst replaces an endpoint of 1 % of the Services at once.
	Burst Burst `json:"burst"`
	// Churn is there for one size only.
	Churn  *Churn `json:"churn,omitempty"`
	Memory Memory `json:"memory"`
}

// Kind is a kind of change.
type Kind string

// The kinds of changes.
const (
	EndpointAdded    Kind = "endpoint added"
	EndpointRemoved  Kind = "endpoint removed"
	EndpointReplaced Kind = "endpoint replaced"
	ServiceAdded     Kind = "service added"
	ServiceDeleted   Kind = "service deleted"
)

// Kinds are all kinds, in the order in which they are shown.
func Kinds() []Kind {
	return []Kind{EndpointAdded, EndpointRemoved, EndpointReplaced, ServiceAdded, ServiceDeleted}
}

// Start is what several starts of the process took. CPU time and traffic are per start, with what the process does for some seconds after it.
type Start struct {
	Times   Quantiles `json:"seconds"`
	CPU     float64   `json:"cpuSeconds"` // mean
	Traffic Traffic   `json:"netlink"`
	// Disturbed is how many starts began although the machine had other work.
	Disturbed int `json:"disturbed,omitempty"`
}

// Change is what one kind of change took.
type Change struct {
	// Times are from before the request to the API server until the kernel told of the committed transaction.
	Times Quantiles `json:"seconds"`
	// Floor are from the same moment until the event reached a watch of nothing but these objects, in the same namespace.
	Floor Quantiles `json:"watchSeconds"`
	// AboveFloor is the difference of the two, of each change.
	AboveFloor Quantiles `json:"aboveWatchSeconds"`
	// CPU is the mean of a change. What the proxy does until it has come to rest is in it, as after a change nobody knows what that is for: for kube-proxy that
	// is at least 1.2 s, of Run.Idle a second.
	CPU     float64 `json:"cpuSeconds"`
	Traffic Traffic `json:"netlink"`
}

// Burst is what the change of many Services at once took.
type Burst struct {
	Changes int       `json:"changes"`
	Times   Quantiles `json:"seconds"`      // from before the first request until the last commit
	Floor   Quantiles `json:"watchSeconds"` // until the last event reached a watch
	CPU     float64   `json:"cpuSeconds"`
	Traffic Traffic   `json:"netlink"`
}

// Churn is what changes at a constant rate took.
type Churn struct {
	Rate    int       `json:"changesPerSecond"`
	Seconds float64   `json:"seconds"`
	Changes int       `json:"changes"`
	Times   Quantiles `json:"latencySeconds"`
	Floor   Quantiles `json:"watchSeconds"`
	CPU     float64   `json:"cpuSeconds"` // of all changes
	Traffic Traffic   `json:"netlink"`    // of all changes
	// Percentiles are those of Times from 0 to 100.
	Percentiles []float64 `json:"percentiles"`
}

// Memory is what the proxy took, in bytes.
type Memory struct {
	// Start is after the first start, Changes after the single changes and the bursts, Churn after the churn.
	Start   Usage  `json:"start"`
	Changes Usage  `json:"changes"`
	Churn   *Usage `json:"churn,omitempty"`
	// Slab is what the kernel's slabs grow from before a start in an empty namespace until the process is gone and its table is there:
	// the most of all starts, since what earlier tables left in the slabs is used again. What else the machine does is in it.
	Slab int64 `json:"slab"`
}

// Usage is memory of the process at one time.
type Usage struct {
	RSS       int64 `json:"rss"`
	HighWater int64 `json:"highWater"`
	// Tree is the most that the process and its children had together since the time before.
	Tree int64 `json:"peakWithChildren"`
}

// Traffic is what was exchanged with the kernel by netlink; means, where there are several.
type Traffic struct {
	Sends    float64 `json:"sends"`
	Sent     float64 `json:"sentBytes"`
	Received float64 `json:"receivedBytes"`
	// Longest is the longest time that the kernel worked on what was sent at once: on one transaction.
	Longest float64 `json:"longestSeconds"`
	// Lost says that events of the trace were lost, so that the numbers are too small.
	Lost bool `json:"lost,omitempty"`
}

// Write writes the result as JSON.
func (r *Result) Write(path string) error { return benchmark.WriteJSON(path, r) }

// Read reads what Write wrote.
func Read(path string) (*Result, error) { return benchmark.ReadJSON[Result](path) }
