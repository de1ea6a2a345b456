package apiclient

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Contact records the contact with the API server: when it answered, and what
// the answers say about the clocks and the watches.
type Contact struct {
	mu    sync.Mutex
	state ContactState
}

// ContactState is the state of a Contact.
type ContactState struct {
	// Answered is the time of the last answer. It is zero before the first.
	Answered time.Time `json:"answered,omitzero"`
	// Failed is the time of the last request without an answer, Error its error
	// in one line.
	Failed time.Time `json:"failed,omitzero"`
	Error  string    `json:"error,omitempty"`
	// Heard is the time of the last bytes of the watches by resource, such as
	// services. A watch without changes is renewed after 5 to 10 minutes.
	Heard map[string]time.Time `json:"heard,omitempty"`
	// Refused are the HTTP statuses of the last answers by resource that were
	// errors of the API server, or about the permissions of this client.
	Refused map[string]int `json:"refused,omitempty"`
	// ViaService reports whether the API server has the address of the Service
	// kubernetes, which needs a service proxy.
	ViaService bool `json:"viaService,omitempty"`
	// AheadSeconds is how far the clock of the API server is ahead of this
	// node's. Compared is the time of the comparison, zero before the first.
	AheadSeconds float64   `json:"aheadSeconds"`
	Compared     time.Time `json:"compared,omitzero"`
}

// Trouble returns why the API server does not serve this client, "" if it does,
// or if no request has been sent yet.
func (s *ContactState) Trouble() string {
	switch {
	case s.Failed.After(s.Answered):
		return "the API server does not answer: " + s.Error
	case len(s.Refused) > 0:
		var all []string
		for _, resource := range slices.Sorted(maps.Keys(s.Refused)) {
			status := s.Refused[resource]
			all = append(all, fmt.Sprintf("%s (%d %s)", resource, status, http.StatusText(status)))
		}
		return "the API server refuses requests for " + strings.Join(all, ", ")
	}
	return ""
}

// State returns a copy of the state.
func (c *Contact) State() ContactState {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state
	s.Heard, s.Refused = maps.Clone(c.state.Heard), maps.Clone(c.state.Refused)
	return s
}

// Wrap returns a round tripper that records the requests of another one (see
// rest.Config.Wrap).
func (c *Contact) Wrap(next http.RoundTripper) http.RoundTripper { return recorder{c, next} }

type recorder struct {
	contact *Contact
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (r recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	r.contact.addressed(request.URL.Hostname())
	begin := time.Now()
	response, err := r.next.RoundTrip(request)
	if err != nil {
		if request.Context().Err() == nil {
			r.contact.failed(err)
		}
		return response, err
	}
	resource := path.Base(request.URL.Path)
	r.contact.answered(begin, resource, response)
	if isWatch(request) && response.StatusCode == http.StatusOK {
		r.contact.heard(resource)
		response.Body = &watchBody{response.Body, func() { r.contact.heard(resource) }}
	}
	return response, nil
}

func isWatch(request *http.Request) bool {
	value := request.URL.Query().Get("watch")
	return value == "1" || value == "true"
}

// serviceHost is the variable with the address of the Service kubernetes that
// every pod has.
const serviceHost = "KUBERNETES_SERVICE_HOST"

// addressed records that a request is sent to a host.
func (c *Contact) addressed(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.ViaService = host == os.Getenv(serviceHost)
}

func (c *Contact) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Failed, c.state.Error = time.Now(), strings.Join(strings.Fields(err.Error()), " ")
}

// isRefusal reports whether a status is an error of the API server, or about
// the permissions of this client.
func isRefusal(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden ||
		status >= http.StatusInternalServerError
}

// answered records an answer about a resource. The clock is compared with the
// middle of a request that took less than a second, the resolution of the
// header Date.
func (c *Contact) answered(begin time.Time, resource string, response *http.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.state.Refused, resource); isRefusal(response.StatusCode) {
		if c.state.Refused == nil {
			c.state.Refused = make(map[string]int)
		}
		c.state.Refused[resource] = response.StatusCode
	}
	now := time.Now()
	c.state.Answered = now
	date, err := http.ParseTime(response.Header.Get("Date"))
	took := now.Sub(begin)
	if err != nil || took > time.Second {
		return
	}
	const half = time.Second / 2 // the header is rounded down
	c.state.AheadSeconds = date.Add(half).Sub(begin.Add(took / 2)).Round(time.Second).Seconds()
	c.state.Compared = now
}

func (c *Contact) heard(resource string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Heard == nil {
		c.state.Heard = make(map[string]time.Time)
	}
	c.state.Heard[resource] = time.Now()
}

// watchBody calls read when the API server has sent bytes.
type watchBody struct {
	io.ReadCloser
	read func()
}

// Read implements io.Reader.
func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.read()
	}
	return n, err
}
