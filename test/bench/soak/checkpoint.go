package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	kube "github.com/nftproxy/nftproxy/test/apiserver/cluster"
	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/lab"
)

// sample is what the proxy of the second node uses, while only the steady
// Services exist.
type sample struct {
	at                         time.Duration
	resident, heap             float64 // bytes; the heap after a garbage collection
	files, goroutines, objects float64 // objects are chains, sets and maps
	stacks                     string  // of goroutines
}

// checkpoint compares the tables of all nodes with those that a fresh proxy
// writes, with all Services and with the steady ones only, and takes a sample.
func (r *run) checkpoint(ctx context.Context) error {
	began := time.Now()
	var took sample
	err := r.churn.pauseEmpty(ctx,
		func() error { return r.compareTables(ctx) },
		func() (err error) {
			if err := r.compareTables(ctx); err != nil {
				return err
			}
			took, err = r.world.nodes[1].sample(ctx)
			return err
		})
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	took.at = time.Since(r.began)
	file := r.world.nodes[1].file(fmt.Sprintf("-goroutines-%02d.txt", len(r.samples)))
	if err := os.WriteFile(file, []byte(took.stacks), 0o600); err != nil {
		return err
	}
	r.samples = append(r.samples, took)
	r.report.Say("checkpoint took %s: %d changes, resident %.1f MB, heap %.2f MB, %.0f files, %.0f goroutines",
		time.Since(began).Round(time.Millisecond), r.churn.made.Load(), took.resident/1e6, took.heap/1e6,
		took.files, took.goroutines)
	return nil
}

// compareTables waits until all proxies have followed, and compares the tables
// of each node.
func (r *run) compareTables(ctx context.Context) error {
	if _, err := follow(ctx, r.world.nodes...); err != nil {
		return err
	}
	for _, n := range r.world.nodes {
		n.still.Lock()
		defer n.still.Unlock()
	}
	for i, n := range r.world.nodes {
		if err := r.world.compareWithFresh(ctx, n, r.world.nodes[1-i].Node); err != nil {
			return err
		}
	}
	return nil
}

// compareWithFresh compares the tables of a node with those that a fresh proxy
// with the same configuration and addresses writes in a pod of another node.
func (w *world) compareWithFresh(ctx context.Context, n *node, at *lab.Node) (err error) {
	pod, err := at.AddPod("fresh")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pod.Remove()) }()
	for i, addr := range n.Addrs() {
		if err := pod.AddAddr(netip.PrefixFrom(addr, n.Addrs()[i].BitLen())); err != nil {
			return err
		}
	}
	fresh, err := kube.StartProcess(ctx, kube.ProcessConfig{
		Namespace: pod.Namespace, Program: w.soak.programs.Product, Args: []string{"--config=" + n.file(".conf")},
		Log: n.file("-fresh.log"),
	})
	if err != nil {
		return err
	}
	defer fresh.End(syscall.SIGKILL)
	const limit = 20 * time.Second
	var got, want []line
	for end := time.Now().Add(limit); time.Now().Before(end); {
		want, err = list(ctx, pod.Namespace) // fails before the first sync
		if err == nil {
			if got, err = list(ctx, n.Namespace); err != nil {
				return err
			}
			if slices.Equal(canonical(want), canonical(got)) {
				return nil
			}
		}
		if err := fresh.Pause(50 * time.Millisecond); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	n.problem("tables of %s differ from those of a fresh proxy:\n%s", n.Name, difference(canonical(want), canonical(got)))
	return nil
}

// sample measures the proxy of the node.
func (n *node) sample(ctx context.Context) (s sample, err error) {
	const rest = time.Second // flows are searched for half a second after a change
	if err := n.process.Pause(rest); err != nil {
		return s, err
	}
	heap, err := n.get(ctx, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return s, err
	}
	if s.stacks, err = n.get(ctx, "/debug/pprof/goroutine?debug=1"); err != nil {
		return s, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.process.PID))
	if err != nil {
		return s, err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.process.PID))
	if err != nil {
		return s, err
	}
	s.files = float64(len(files))
	lines, err := list(ctx, n.Namespace)
	for _, l := range lines {
		if l.text == "" {
			s.objects++
		}
	}
	return s, errors.Join(err,
		read(&s.heap, heap, `(?m)^# HeapAlloc = (\d+)$`, 1),
		read(&s.goroutines, s.stacks, `^goroutine profile: total (\d+)`, 1),
		read(&s.resident, string(status), `(?m)^VmRSS:\s+(\d+) kB$`, 1024))
}

// get requests a page of the status server of the proxy.
func (n *node) get(ctx context.Context, path string) (string, error) {
	client := http.Client{
		Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}, Timeout: 30 * time.Second,
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10249"+path, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// read reads a number of a text, in multiples of a unit.
func read(to *float64, text, pattern string, unit float64) error {
	match := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if match == nil {
		return fmt.Errorf("got no %s in %.200q", pattern, text)
	}
	n, err := strconv.ParseFloat(match[1], 64)
	*to = n * unit
	return err
}

// quantities are what must not grow. The allowance is a constant and a part of
// the earlier value. Idle balancers and sets of clients stay in the tables, up
// to 16 and 64 of each family.
func quantities() []quantity {
	return []quantity{
		{"heap", report.Bytes, 512 << 10, 0.03, func(s sample) float64 { return s.heap }},
		{"resident", report.Bytes, 4 << 20, 0.05, func(s sample) float64 { return s.resident }},
		{"files", report.Count, 2, 0, func(s sample) float64 { return s.files }},
		{"goroutines", report.Count, 2, 0, func(s sample) float64 { return s.goroutines }},
		{"objects", report.Count, 2 * (16 + 64), 0, func(s sample) float64 { return s.objects }},
	}
}

type quantity struct {
	name           string
	unit           report.Unit
	constant, part float64
	of             func(sample) float64
}

// growth returns the medians of the first and of the second half of the
// samples after the warm-up, which is the first quarter, and reports whether
// the quantity grew.
func (q quantity) growth(samples []sample) (before, after float64, grew bool) {
	var values report.Sample
	for _, s := range samples[(len(samples)+3)/4:] {
		values = append(values, q.of(s))
	}
	half := len(values) / 2
	before, after = values[:half].Median(), values[len(values)-half:].Median()
	return before, after, after > before*(1+q.part)+q.constant
}

// firstStack returns the most frequent stack of a profile of goroutines.
func firstStack(profile string) string {
	_, stacks, _ := strings.Cut(profile, "\n")
	stack, _, _ := strings.Cut(stacks, "\n\n")
	return stack
}
