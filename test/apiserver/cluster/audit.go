package cluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// auditPolicy notes what service accounts ask for, when it is answered or, for watches, when the answer begins.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`

// Request is one that a service account made of an API server.
type Request struct {
	Stage string `json:"stage"` // ResponseStarted (watches only), ResponseComplete or Panic
	Verb  string `json:"verb"`
	URI   string `json:"requestURI"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Group     string `json:"apiGroup"`
		Resource  string `json:"resource"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	// Annotations hold the authorizer's decision, in authorization.k8s.io/decision.
	Annotations map[string]string `json:"annotations"`
	Received    time.Time         `json:"requestReceivedTimestamp"`
}

// Allowed tells whether the authorizer let the request pass.
func (r Request) Allowed() bool { return r.Annotations["authorization.k8s.io/decision"] == "allow" }

// String tells what was asked for and the answer's code.
func (r Request) String() string {
	return fmt.Sprintf("%s %s: %d %s", r.Verb, r.URI, r.Response.Code, r.Stage)
}

func (s *APIServer) auditLog() string { return s.name() + "-audit.log" }

// Requests returns what service accounts asked of the API server since it was first started, in the order in which it was answered.
func (s *APIServer) Requests() ([]Request, error) {
	file, err := os.Open(s.cluster.path(s.auditLog()))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var out []Request
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			// The API server may be about to write the last line.
			break
		}
		out = append(out, r)
	}
	return out, lines.Err()
}
