package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
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

// Store stores objects in etcd in one transaction, with the values of their
// fields. Unlike a request to the API server, it validates, defaults and
// allocates nothing, and takes the same time whatever the number of objects.
// Running API servers send events of it. A key of an object follows the prefix
// of all keys: "services/specs/default/web".
func (c *Cluster) Store(ctx context.Context, objects map[string]runtime.Object) error {
	type put struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	type operation struct {
		Put put `json:"requestPut"`
	}
	var request struct {
		Success []operation `json:"success"`
	}
	for key, o := range objects {
		kinds, _, err := scheme.Scheme.ObjectKinds(o)
		if err != nil {
			return err
		}
		value, err := runtime.Encode(scheme.Codecs.EncoderForVersion(stored, kinds[0].GroupVersion()), o)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		request.Success = append(request.Success, operation{put{[]byte("/registry/" + key), value}})
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return c.callEtcd(ctx, "/v3/kv/txn", string(body), &struct{}{})
}

// stored is the encoding of API servers in etcd.
var stored = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

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
