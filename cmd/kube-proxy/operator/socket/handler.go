package socket

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// Paths of the protocol. A change that is not compatible needs a new version.
const (
	pathStatus   = "/v1/status"
	pathServices = "/v1/services"
	pathDiff     = "/v1/diff"
	pathExplain  = "/v1/explain"
)

// flushPeriod is how long a value may wait for others before it is sent.
const flushPeriod = 100 * time.Millisecond

// errorTrailer is the HTTP trailer with the error of an answer that is not
// complete.
const errorTrailer = "Error"

// failure is the body of an answer that is an error.
type failure struct {
	Error string `json:"error"`
}

// newHandler returns the HTTP server's pages.
func newHandler(proxy Proxy) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathStatus, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, proxy.Status())
	})
	mux.HandleFunc("GET "+pathServices, func(w http.ResponseWriter, r *http.Request) {
		q := cluster.ServiceName{Namespace: r.FormValue("namespace"), Name: r.FormValue("name")}
		stream(w, r, func(ctx context.Context, yield func(*table.ServiceView) error) error {
			return proxy.Services(ctx, q, yield)
		})
	})
	mux.HandleFunc("GET "+pathDiff, func(w http.ResponseWriter, r *http.Request) {
		stream(w, r, func(ctx context.Context, yield func(*table.DiffStep) error) error {
			return proxy.Diff(ctx, r.FormValue("after"), yield)
		})
	})
	mux.HandleFunc("GET "+pathExplain, func(w http.ResponseWriter, r *http.Request) {
		stream(w, r, func(ctx context.Context, yield func(*explain.Desired) error) error {
			q, err := parsePacket(r.FormValue)
			if err != nil {
				return err
			}
			desired, err := proxy.Explain(ctx, q)
			if err != nil {
				return err
			}
			return yield(desired)
		})
	})
	return mux
}

// stream answers with JSON values, one per line, while query yields them. The
// context ends when the client closes the connection.
func stream[T any](
	w http.ResponseWriter, r *http.Request, query func(ctx context.Context, yield func(*T) error) error,
) {
	encoder, began, flushed := json.NewEncoder(w), false, time.Now()
	err := query(r.Context(), func(v *T) error {
		if !began {
			w.Header().Set("Trailer", errorTrailer)
		}
		began = true
		err := encoder.Encode(v)
		if err == nil && time.Since(flushed) >= flushPeriod {
			flushed = time.Now()
			err = http.NewResponseController(w).Flush()
		}
		return err
	})
	switch {
	case err == nil:
	case began:
		w.Header().Set(errorTrailer, strings.ReplaceAll(err.Error(), "\n", "; "))
	default:
		refuse(w, err)
	}
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, answer.ErrNoService):
		code = http.StatusNotFound
	case errors.Is(err, context.DeadlineExceeded):
		code = http.StatusServiceUnavailable
	}
	reply(w, code, failure{err.Error()})
}

// reply answers with one JSON value.
func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(v) // it fails only if the client is gone
}
