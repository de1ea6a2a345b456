package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/nftproxy/nftproxy/test/apiserver/benchmark"
)

// keepProfile asks the proxy for one of its profiles and keeps it in the output folder. Profiles are for people who look for what
// bounds a figure: that there is none is told, and is no error.
func (n *node) keepProfile(ctx context.Context, phase, profile string) {
	if !n.world.options.profile || n.proxy != benchmark.Product {
		return
	}
	name := fmt.Sprintf("%s-%dx%d-%s.pb.gz", n.proxy, n.world.stock.services, n.world.stock.endpoints, phase)
	if err := n.fetch(ctx, filepath.Join(n.world.options.output, name), "http://127.0.0.1:10249/debug/pprof/"+profile); err != nil {
		n.world.options.say("no profile %s: %v", name, err)
	}
}

// profileCPU keeps a CPU profile of that time, which begins as soon as the proxy answers. It returns at once; the profile is complete
// when the function that it returns does.
func (n *node) profileCPU(ctx context.Context, phase string, d time.Duration) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.keepProfile(ctx, phase, fmt.Sprintf("profile?seconds=%d", max(1, int(d.Seconds()))))
	}()
	return func() { <-done }
}

func (n *node) fetch(ctx context.Context, path, url string) error {
	client := http.Client{Transport: &http.Transport{DialContext: n.pod.DialContext, DisableKeepAlives: true}}
	var response *http.Response
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if response, err = client.Do(request); err == nil {
			break
		}
		select {
		case <-n.process.running.Done():
			return context.Cause(n.process.running)
		case <-time.After(time.Millisecond):
		}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(file, response.Body)
	return err
}
