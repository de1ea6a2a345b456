package app

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"
)

// rebindDelay is how long the metrics server waits before it tries again to listen on an address that is taken.
const rebindDelay = 5 * time.Second

// serveMetrics answers /metrics on addr until ctx ends. An address that cannot be listened on is logged and tried again: serving
// Services goes on without it.
func serveMetrics(ctx context.Context, addr string, collector prometheus.Collector) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	for ctx.Err() == nil {
		if err := listenAndServe(ctx, addr, mux); err != nil {
			klog.ErrorS(err, "Metrics cannot be served, trying again", "address", addr)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rebindDelay):
		}
	}
}

func listenAndServe(ctx context.Context, addr string, handler http.Handler) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
