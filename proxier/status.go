package proxier

import (
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/checker"
	"github.com/nftproxy/nftproxy/proxier/history"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// Status describes a Proxier.
type Status struct {
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
	InvalidObjects int `json:"invalidObjects"`
	// RetryAfterSeconds is the time after which new connections without an
	// answer can get another endpoint, 0 for never. NoTimeouts reports whether
	// that is the reason: rules cannot set timeouts of connection tracking.
	RetryAfterSeconds int  `json:"retryAfterSeconds"`
	NoTimeouts        bool `json:"noTimeouts,omitempty"`
	// ResetStaleConnections reports whether connections to endpoints that are
	// gone are reset.
	ResetStaleConnections bool `json:"resetStaleConnections,omitempty"`
	// Eject reports whether endpoints that do not answer are ejected. Blind are
	// the service ports of which none is ejected, because neither suspects nor
	// other endpoints answer probes of this node.
	Eject bool     `json:"eject,omitempty"`
	Blind []string `json:"blind,omitempty"` // namespace/name:port
	// HealthChecks describes the health checks of endpoints.
	HealthChecks checker.Summary `json:"healthChecks,omitzero"`
	Families     []FamilyStatus  `json:"families"`
}

// FamilyStatus describes the table of one address family. The numbers are those
// after the last sync.
type FamilyStatus struct {
	Family nft.Family `json:"family"`
	// Healthy is false if a change has been waiting too long for a successful
	// sync, or if the table has an Outage.
	Healthy bool `json:"healthy"`
	// Synced is the end of the last successful sync. It is zero before the
	// first.
	Synced time.Time `json:"synced,omitzero"`
	// WaitingSince is the time of the oldest change that is not effective yet.
	WaitingSince time.Time `json:"waitingSince,omitzero"`
	// LastSync is the last sync that ended, nil before the first.
	LastSync *SyncStatus `json:"lastSync,omitempty"`
	// LastWrite is the last sync that wrote something, nil before the first.
	LastWrite *SyncStatus `json:"lastWrite,omitempty"`
	// LastChanges are the first entries of the history about LastWrite,
	// MoreChanges is the number of the others.
	LastChanges []history.Entry `json:"lastChanges,omitempty"`
	MoreChanges int             `json:"moreChanges,omitempty"`
	table.Stats
}

// SyncStatus describes a sync that ended.
type SyncStatus struct {
	Ended   time.Time `json:"ended"`
	Seconds float64   `json:"seconds"`
	// Cause is why the sync ran: "changes", "periodic", or the reason for
	// writing the whole table or a part of it again.
	Cause string `json:"cause"`
	// Whole reports whether the sync wrote, or tried to write, the whole table.
	Whole bool `json:"whole"`
	// Error is the error of a sync that failed.
	Error string `json:"error,omitempty"`
	// Transactions and Rows are the numbers of transactions and rows that the
	// sync wrote.
	Transactions int `json:"transactions,omitempty"`
	Rows         int `json:"rows,omitempty"`
}

// maxLastChanges is the number of entries of the history in a FamilyStatus.
const maxLastChanges = 3
