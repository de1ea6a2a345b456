package healthcheck

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"k8s.io/klog/v2"
)

// FamilyHealth is the state of the rules of one address family.
type FamilyHealth struct {
	// Family is IPv4 or IPv6, as in the API.
	Family string `json:"-"`

	// LastUpdated is the time of the last successful sync. It is the zero
	// time before the first one.
	LastUpdated time.Time `json:"lastUpdated"`

	// Healthy reports whether syncs keep up: no change has waited longer for
	// a successful sync than it may. It is true before the first change.
	Healthy bool `json:"healthy"`

	// Failing reports whether new connections fail because another program
	// damaged the rules. A restart of the process would not help.
	Failing bool `json:"-"`
}

// live reports whether a restart of the process would not help.
func (f FamilyHealth) live() bool { return f.Healthy }

// serving reports whether the rules are in place and up to date.
func (f FamilyHealth) serving() bool { return f.Healthy && !f.Failing && !f.LastUpdated.IsZero() }

// ProxyConfig configures a [ProxyServer].
type ProxyConfig struct {
	// Addr is the address to listen on; see [HTTPConfig]
	// (healthzBindAddress).
	Addr string

	// HardFail makes Run return the first error; see [HTTPConfig]
	// (bindAddressHardFail).
	HardFail bool

	// Health returns the state of each address family. Like the other
	// functions, it is called for each request, on any goroutine.
	Health func() []FamilyHealth

	// NodeEligible reports whether load balancers may send traffic to the
	// node: it exists and is not being deleted.
	NodeEligible func() bool

	// OnHealthz and OnLivez are called with the status code of each response.
	// They may be nil.
	OnHealthz, OnLivez func(code int)
}

// ProxyServer serves the health of the proxy itself: /healthz for load
// balancers that send traffic to all nodes (KEP-3836), /livez for liveness
// probes.
//
//   - /livez returns 503 while a family is not healthy because its syncs
//     fail or hang, and 200 otherwise.
//   - /healthz also returns 503 while the node is not eligible for traffic,
//     so that load balancers stop using it, and while new connections fail
//     because another program damaged the rules.
//
// Unlike in kube-proxy, /healthz returns 503 before the first successful
// sync of all families, because the node cannot serve traffic yet.
type ProxyServer struct {
	*HTTPServer
	config ProxyConfig
}

// NewProxyServer returns a server. It does not listen until Listen or Run is
// called.
func NewProxyServer(config ProxyConfig) (*ProxyServer, error) {
	if config.Health == nil || config.NodeEligible == nil {
		return nil, errors.New("proxy health: Health and NodeEligible are required")
	}
	s := &ProxyServer{config: config}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", s.healthz)
	mux.HandleFunc("/livez", s.livez)
	s.HTTPServer = NewHTTPServer(HTTPConfig{
		Name: "healthz", Field: "healthzBindAddress", Addr: config.Addr, HardFail: config.HardFail, Handler: mux,
	})
	return s, nil
}

func (s *ProxyServer) healthz(w http.ResponseWriter, _ *http.Request) {
	health := summarize(s.config.Health(), FamilyHealth.serving, time.Now())
	eligible := s.config.NodeEligible()
	health.NodeEligible = &eligible
	writeProxyHealth(w, health, health.Healthy && eligible, s.config.OnHealthz)
}

func (s *ProxyServer) livez(w http.ResponseWriter, _ *http.Request) {
	health := summarize(s.config.Health(), FamilyHealth.live, time.Now())
	writeProxyHealth(w, health, health.Healthy, s.config.OnLivez)
}

// proxyHealth is the body of a response. The keys and their order are those
// of kube-proxy.
type proxyHealth struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"` // /healthz only
	Healthy      bool                    `json:"healthy"`
	Status       map[string]FamilyHealth `json:"status,omitempty"`
}

// summarize returns the body of a response. Healthy is true if there is at
// least one family and ok is true for all of them.
func summarize(families []FamilyHealth, ok func(FamilyHealth) bool, now time.Time) proxyHealth {
	health := proxyHealth{CurrentTime: now, Healthy: len(families) > 0, Status: make(map[string]FamilyHealth)}
	for _, f := range families {
		f.Healthy = ok(f)
		health.Status[f.Family] = f
		health.Healthy = health.Healthy && f.Healthy
		if f.LastUpdated.After(health.LastUpdated) {
			health.LastUpdated = f.LastUpdated
		}
	}
	return health
}

// writeProxyHealth writes a response. With status 200, lastUpdated is the
// current time: some clients require a recent time, and rules that need no
// change are up to date.
func writeProxyHealth(w http.ResponseWriter, health proxyHealth, ok bool, count func(code int)) {
	code := http.StatusServiceUnavailable
	if ok {
		code = http.StatusOK
		health.LastUpdated = health.CurrentTime
	}
	if count != nil {
		count(code)
	}
	body, err := json.Marshal(health)
	if err != nil { // a time that RFC 3339 cannot represent
		klog.ErrorS(err, "Failed to encode the health of the proxy")
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	w.Write(body)
}
