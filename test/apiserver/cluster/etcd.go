package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

const etcdURL = "http://127.0.0.1:2379"

// startEtcd starts an empty etcd. API servers wait until it is ready.
func (c *Cluster) startEtcd() (err error) {
	const peers = "http://127.0.0.1:2380"
	c.etcd, err = c.start("etcd", "etcd",
		"--data-dir", c.path("etcd"),
		"--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers,
		"--quota-backend-bytes", fmt.Sprint(8<<30), // for benchmarks with many objects
		"--unsafe-no-fsync")
	return err
}

// Compact removes all revisions from etcd but the current one. A watch from an
// older revision then fails with 410 Gone, unless the API server has cached it;
// one that was started later has not.
func (c *Cluster) Compact(ctx context.Context) error {
	var status struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := c.callEtcd(ctx, "/v3/maintenance/status", "{}", &status); err != nil {
		return err
	}
	request := fmt.Sprintf(`{"revision": %q, "physical": true}`, status.Header.Revision)
	return c.callEtcd(ctx, "/v3/kv/compaction", request, &struct{}{})
}

// callEtcd calls a method of etcd's JSON interface.
func (c *Cluster) callEtcd(ctx context.Context, path, request string, answer any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, etcdURL+path, strings.NewReader(request))
	if err != nil {
		return err
	}
	response, err := c.config.Namespace.HTTPClient(0).Do(r)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
