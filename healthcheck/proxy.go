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
	Family string

	// LastUpdated is the time of the last successful sync. It is the zero time
	// before the first one.
	LastUpdated time.Time

	// Healthy reports whether syncs keep up: no change has waited longer for a
	// successful sync than it may. It is true before the first change.
	Healthy bool
}

// live reports whether a restart of the process would not help.
func (f FamilyHealth) live() bool { return f.Healthy }

// serving reports whether the rules are in place and up to date.
func (f FamilyHealth) serving() bool { return f.Healthy && !f.LastUpdated.IsZero() }

// ProxyConfig configures a [ProxyServer].
type ProxyConfig struct {
	// Addr is where to listen, see [HTTPConfig] (healthzBindAddress).
	Addr string

	// HardFail: see [HTTPConfig] (bindAddressHardFail).
	HardFail bool

	// Health returns the state of each address family. Like the other functions
	// here, it is called for each request, in any goroutine.
	Health func() []FamilyHealth

	// NodeEligible reports whether load balancers may send traffic to the node:
	// it exists and is not being deleted.
	NodeEligible func() bool

	// OnHealthz and OnLivez are called with the status code of every answer.
	// They may be nil.
	OnHealthz, OnLivez func(code int)
}

// ProxyServer serves the health of the proxy itself: /healthz for load balancers
// that send traffic to every node (KEP-3836), /livez for a liveness probe. Paths,
// bodies and status codes are those of kube-proxy 1.36:
//
//   - /livez is 200 from the moment the server runs. It is 503 while a family is
//     not healthy, because syncs fail or hang.
//   - /healthz is 503 in the same case, and also while the node is not eligible
//     for traffic, so that load balancers stop using it.
//
// Unlike in kube-proxy, /healthz is 503 before the first successful sync of every
// family: the node cannot serve traffic yet.
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
	health := summarize(s.config.Health(), FamilyHealth.serving, time.Now())
	eligible := s.config.NodeEligible()
	health.NodeEligible = &eligible
	answerHealth(w, health, health.Healthy && eligible, s.config.OnHealthz)
}

func (s *ProxyServer) livez(w http.ResponseWriter, _ *http.Request) {
	health := summarize(s.config.Health(), FamilyHealth.live, time.Now())
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

// summarize returns the body of an answer: healthy is true if ok is true of every
// family, and there is one.
func summarize(families []FamilyHealth, ok func(FamilyHealth) bool, now time.Time) proxyHealth {
	health := proxyHealth{CurrentTime: now, Healthy: len(families) > 0, Status: make(map[string]familyStatus)}
	for _, f := range families {
		health.Status[f.Family] = familyStatus{f.LastUpdated, ok(f)}
		health.Healthy = health.Healthy && ok(f)
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
