package healthcheck

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"k8s.io/klog/v2"
)

// FamilyHealth says how the rules of one address family stand.
type FamilyHealth struct {
	// Family is IPv4 or IPv6, as in the API.
	Family string

	// LastUpdated is when the rules last became what they should be; the zero time if they never were.
	LastUpdated time.Time

	// Healthy says that they were once, and that no change waits longer for them than it may.
	Healthy bool
}

// ProxyConfig configures a [ProxyServer].
type ProxyConfig struct {
	// Addr is where to listen, see [HTTPConfig] (healthzBindAddress).
	Addr string

	// HardFail: see [HTTPConfig] (bindAddressHardFail).
	HardFail bool

	// Health tells how each address family stands. Like all functions here it is called for a request, on any goroutine.
	Health func() []FamilyHealth

	// NodeEligible says whether the node is to get traffic from load balancers: it exists and is not being deleted.
	NodeEligible func() bool

	// OnHealthz and OnLivez are told the status of every answer; they may be nil.
	OnHealthz, OnLivez func(code int)
}

// ProxyServer answers how the proxy itself stands: /healthz for load balancers that send traffic to every node (KEP-3836), /livez for
// whoever restarts what does not work. Paths, bodies and status are those of kube-proxy 1.36:
//
//   - 200 if every family is healthy, else 503.
//   - /healthz is 503 also while the node is being deleted, so that balancers let go of it. /livez is not: restarting would help nobody.
//
// Unlike kube-proxy, which says that it is healthy as soon as it answers, neither is 200 before the first rules are in place.
type ProxyServer struct {
	*HTTPServer
	config ProxyConfig
}

// NewProxyServer makes a server that listens to nothing yet.
func NewProxyServer(config ProxyConfig) (*ProxyServer, error) {
	if config.Health == nil || config.NodeEligible == nil {
		return nil, errors.New("proxy health: no Health or no NodeEligible function")
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
	health := summarize(s.config.Health(), time.Now())
	eligible := s.config.NodeEligible()
	health.NodeEligible = &eligible
	answerHealth(w, health, health.Healthy && eligible, s.config.OnHealthz)
}

func (s *ProxyServer) livez(w http.ResponseWriter, _ *http.Request) {
	health := summarize(s.config.Health(), time.Now())
	answerHealth(w, health, health.Healthy, s.config.OnLivez)
}

// proxyHealth is the body of an answer. The keys and their order are kube-proxy's.
type proxyHealth struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"` // only in answers of /healthz
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyStatus `json:"status,omitempty"`
}

type familyStatus struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// summarize says how all families together stand. Of none nothing is known, which is not healthy.
func summarize(families []FamilyHealth, now time.Time) proxyHealth {
	health := proxyHealth{CurrentTime: now, Healthy: len(families) > 0, Status: make(map[string]familyStatus)}
	for _, f := range families {
		health.Status[f.Family] = familyStatus{f.LastUpdated, f.Healthy}
		health.Healthy = health.Healthy && f.Healthy
		if f.LastUpdated.After(health.LastUpdated) {
			health.LastUpdated = f.LastUpdated
		}
	}
	return health
}

// answerHealth writes an answer. One of 200 says that everything was updated just now, since it is up to date: some clients ask for a
// recent time, and rules that need no change are none the worse for their age.
func answerHealth(w http.ResponseWriter, health proxyHealth, ok bool, count func(code int)) {
	code := http.StatusServiceUnavailable
	if ok {
		code = http.StatusOK
		health.LastUpdated = health.CurrentTime
	}
	if count != nil {
		count(code)
	}
	body, err := json.Marshal(health)
	if err != nil { // a time that RFC 3339 has no words for
		klog.ErrorS(err, "Health cannot be told")
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	w.Write(body)
}
