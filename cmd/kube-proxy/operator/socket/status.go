package socket

import "time"

// Status describes a running proxy.
type Status struct {
	Version string `json:"version"`
	// Mode is the proxy mode in terms of kube-proxy: nftables.
	Mode string `json:"mode"`
	Node string `json:"node"`
	PID  int    `json:"pid"`
	// Time is the time of the answer.
	Time time.Time `json:"time"`
	// Started is the time at which the proxy started.
	Started time.Time `json:"started"`
	// Listed reports whether the proxy has the first full lists of Services and
	// EndpointSlices. It writes nothing before.
	Listed bool `json:"listed"`
	// NodeEligible reports whether load balancers may send traffic to this
	// node, according to its Node object.
	NodeEligible bool `json:"nodeEligible"`
	// InvalidObjects is the number of Services and EndpointSlices with invalid
	// fields, which are ignored.
	InvalidObjects int            `json:"invalidObjects"`
	Families       []FamilyStatus `json:"families"`
	// API is nil if the proxy serves manifests.
	API *APIStatus `json:"api,omitempty"`
}

// APIStatus describes the contact with the API server.
type APIStatus struct {
	// Answered is the time of the last answer, Failed that of the last request
	// without an answer, and Error its error.
	Answered time.Time `json:"answered,omitzero"`
	Failed   time.Time `json:"failed,omitzero"`
	Error    string    `json:"error,omitempty"`
	// Heard is the time of the last bytes of the watches by resource.
	Heard map[string]time.Time `json:"heard,omitempty"`
	// AheadSeconds is how far the clock of the API server is ahead of this
	// node's. It is valid if Compared is not zero.
	AheadSeconds float64   `json:"aheadSeconds"`
	Compared     time.Time `json:"compared,omitzero"`
}

// FamilyStatus describes the table of one address family. The numbers are those
// after the last sync.
type FamilyStatus struct {
	// Family is IPv4 or IPv6.
	Family string `json:"family"`
	// Healthy is false if a change has been waiting too long for a successful
	// sync.
	Healthy bool `json:"healthy"`
	// Synced is the end of the last successful sync. It is zero before the
	// first.
	Synced time.Time `json:"synced,omitzero"`
	// WaitingSince is the time of the oldest change that is not effective yet.
	WaitingSince time.Time `json:"waitingSince,omitzero"`
	// LastSync is the last sync that ended, nil before the first.
	LastSync *Sync `json:"lastSync,omitempty"`
	// Services is the number of Services, ServicePorts the number of service
	// ports in the kernel, and Endpoints the number of their endpoints that
	// traffic with policy Cluster uses.
	Services     int `json:"services"`
	ServicePorts int `json:"servicePorts"`
	Endpoints    int `json:"endpoints"`
	// Rows is the number of rows by set, without the sets that packets fill.
	Rows map[string]int `json:"rows"`
	// Rewrites counts the syncs that wrote the whole table, Repairs the repairs
	// of changes by other programs, by the kind of the damage.
	Rewrites int            `json:"rewrites"`
	Repairs  map[string]int `json:"repairs"`
	// Refused is the number of service ports that cannot be updated, for
	// example because the kernel refused a row. Refusals lists them unless
	// there are many.
	Refused  int       `json:"refused"`
	Refusals []Refusal `json:"refusals,omitempty"`
	// Contested is the number of frontends that several service ports claim.
	// Conflicts lists the service ports without traffic unless there are many.
	Contested int        `json:"contested"`
	Conflicts []Conflict `json:"conflicts,omitempty"`
	// Reduced is the number of Services that exceed a budget of rows.
	// Reductions lists them unless there are many.
	Reduced    int         `json:"reduced,omitempty"`
	Reductions []Reduction `json:"reductions,omitempty"`
}

// Reduction is a Service that exceeds a budget of rows, and what of it is
// served.
type Reduction struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	How       string `json:"how"`
}

// Sync describes a sync that ended.
type Sync struct {
	Ended   time.Time `json:"ended"`
	Seconds float64   `json:"seconds"`
	// Cause is why the sync ran: "changes", "periodic", or the reason for
	// writing the whole table or a part of it again.
	Cause string `json:"cause"`
	// Whole reports whether the sync wrote, or tried to write, the whole table.
	Whole bool `json:"whole"`
	// Error is the error of a sync that failed.
	Error string `json:"error,omitempty"`
}

// Refusal is a service port that cannot be updated.
type Refusal struct {
	// ServicePort is namespace/name:port.
	ServicePort string `json:"servicePort"`
	Reason      string `json:"reason"`
}

// Conflict is a service port that gets no traffic on a frontend because another
// one owns it.
type Conflict struct {
	ServicePort string `json:"servicePort"`
	// Frontend is ADDRESS:PORT/PROTOCOL, or NodePort PORT/PROTOCOL.
	Frontend string `json:"frontend"`
	Owner    string `json:"owner"`
}
