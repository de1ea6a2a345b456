package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/listing"
)

// sample is what the proxy of the second node uses, while only the steady
// Services exist.
type sample struct {
	at                         time.Duration
	resident, heap             float64 // bytes; the heap after a garbage collection
	files, goroutines, objects float64 // objects are chains, sets and maps
	stacks, profile            string  // of goroutines and of the heap
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
	for name, text := range map[string]string{"goroutines": took.stacks, "heap": took.profile} {
		file := r.world.nodes[1].file(fmt.Sprintf("-%s-%02d.txt", name, len(r.samples)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
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
	if err := pod.AddAddr(lab.HostPrefixes(n.Addrs()...)...); err != nil {
		return err
	}
	fresh, err := n.run(pod.Namespace, w.soak.programs.Product, "-fresh.log", nil)
	if err != nil {
		return err
	}
	defer fresh.End(syscall.SIGKILL)
	const period, limit = 50 * time.Millisecond, 20 * time.Second
	err = awaitEqual(ctx, period, limit, func() (want, got []string, err error) {
		wanted, errWanted := listing.List(ctx, pod.Namespace) // fails before the first sync
		present, errPresent := listing.List(ctx, n.Namespace)
		return canonical(wanted), canonical(present), errors.Join(errWanted, errPresent)
	})
	if ended := errors.Join(ctx.Err(), context.Cause(fresh.Running)); ended != nil {
		return ended
	}
	if err != nil {
		w.problem("tables of %s differ from the tables of a fresh proxy: %v", n.Name, err)
	}
	return nil
}

// sample measures the proxy of the node.
func (n *node) sample(ctx context.Context) (s sample, err error) {
	const rest = time.Second // flows are searched for half a second after a change
	if err := n.process.Pause(rest); err != nil {
		return s, err
	}
	const heapAfterGC = "/debug/pprof/heap?gc=1&debug=1"
	if _, err := n.get(ctx, heapAfterGC); err != nil { // pools keep memory for one collection
		return s, err
	}
	heap, errHeap := n.get(ctx, heapAfterGC)
	stacks, errStacks := n.get(ctx, "/debug/pprof/goroutine?debug=1")
	proc, errProc := procfs.NewProc(n.process.PID)
	if err := errors.Join(errHeap, errStacks, errProc); err != nil {
		return s, err
	}
	s.stacks, s.profile = stacks, heap
	status, errStatus := proc.NewStatus()
	files, errFiles := proc.FileDescriptorsLen()
	lines, errLines := listing.List(ctx, n.Namespace)
	s.resident, s.files = float64(status.VmRSS), float64(files)
	for _, l := range lines {
		if l.Text == "" && !balancer.MatchString(strings.TrimPrefix(l.Object, "chain ")) {
			s.objects++
		}
	}
	return s, errors.Join(errStatus, errFiles, errLines,
		read(&s.heap, heap, "\n# HeapAlloc = "), read(&s.goroutines, stacks, "goroutine profile: total "))
}

// get requests a page of the status server of the proxy.
func (n *node) get(ctx context.Context, path string) (string, error) {
	_, body, err := n.Get(ctx, "http://127.0.0.1:10249"+path, 30*time.Second)
	return string(body), err
}

// read reads the number that follows a text.
func read(to *float64, text, before string) error {
	_, number, _ := strings.Cut(text, before)
	if _, err := fmt.Sscan(number, to); err != nil {
		return fmt.Errorf("got no %q in %.200q: %w", before, text, err)
	}
	return nil
}

// quantities are what must not grow. The allowance is a constant and a part of
// the earlier value. Idle sets of clients stay in the tables, up to 64 of each
// family. Balancers, of which there is one for each number of targets that was
// used, do not count.
func quantities() []quantity {
	return []quantity{
		{"heap", report.Bytes, 1 << 20, 0.03, func(s sample) float64 { return s.heap }},
		{"resident", report.Bytes, 4 << 20, 0.05, func(s sample) float64 { return s.resident }},
		{"files", report.Count, 2, 0, func(s sample) float64 { return s.files }},
		{"goroutines", report.Count, 2, 0, func(s sample) float64 { return s.goroutines }},
		{"objects", report.Count, 2 * 64, 0, func(s sample) float64 { return s.objects }},
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

// past is what depends on the past in lines of some objects, and its
// replacement: indexes of targets, numbers of service ports, ids, groups, sets
// and probabilities of session affinity.
var past = []struct {
	object, text *regexp.Regexp
	with         string
}{
	{regexp.MustCompile(`^map port-targets$`), regexp.MustCompile(`^[0-9a-f]+:[0-9a-f]+ : `), "N : "},
	{regexp.MustCompile(`^chain port-`), regexp.MustCompile(`offset \d+`), "N"},
	{regexp.MustCompile(`-targets$`), regexp.MustCompile(` \. [0-9a-f]{3}:[0-9a-f]+ : `), " . all : "},
	{regexp.MustCompile(`-targets$`), regexp.MustCompile(` \. [0-9a-f]{1,2}:[0-9a-f]+ : `), " . some : "},
	{regexp.MustCompile(`^chain affinity`), regexp.MustCompile(`meta priority set [0-9a-f]+:[0-9a-f]+ `), "id "},
	{regexp.MustCompile(`^chain affinity`), regexp.MustCompile(`numgen random mod \d+ \d+ `), ""},
	{regexp.MustCompile(`^chain affinity`), regexp.MustCompile(`((id )?update @\S+ \{ [^}]* \} )+`), "update "},
	{regexp.MustCompile(``), regexp.MustCompile(`\bport-(external-|local-)?\d+`), "port-${1}N"},
	{regexp.MustCompile(``), affinitySet, "clients-N"},
}

var (
	affinitySet = regexp.MustCompile(`\bclients-\d+`)
	classChain  = regexp.MustCompile(`^([0-9a-f]+:[0-9a-f]+) : goto (\S+)$`)
	balancer    = regexp.MustCompile(`^(balance|external|guarded|(nodeport-)?(local|all)|nodeport)-` +
		`(once-|weighted-|once-weighted-|hash-|port-hash-)?\d+$`)
	client    = regexp.MustCompile(` timeout \w+$`)
	group     = regexp.MustCompile(`\baffinity(-local)?-(?:known|new)\.\d+\.`)
	portChain = regexp.MustCompile(`^(chain port-(?:external-|local-)?)\d+$`)
)

// chainOfClass returns the chain to which the row of a class leads, "" for
// another line.
func chainOfClass(l listing.Line) string {
	if match := classChain.FindStringSubmatch(l.Text); match != nil && strings.HasSuffix(l.Object, "class-chains") {
		return match[2]
	}
	return ""
}

// usedBalancers returns the families and names of the chains whose class a
// frontend has.
func usedBalancers(lines []listing.Line) map[string]bool {
	classes, used := map[string]bool{}, map[string]bool{}
	for _, l := range lines {
		if strings.HasSuffix(l.Object, "-classes") {
			classes[l.Family+l.Text[strings.LastIndexByte(l.Text, ' ')+1:]] = true
		}
	}
	for _, l := range lines {
		if chain := chainOfClass(l); chain != "" && classes[l.Family+classChain.FindStringSubmatch(l.Text)[1]] {
			used[l.Family+chain] = true
		}
	}
	return used
}

// canonical returns the lines without what depends on the past, such as clients
// of session affinity and balancers that no frontend uses, and without
// timeouts, which depend on sysctls of the namespace. All lines are sorted.
func canonical(lines []listing.Line) (all []string) {
	used := usedBalancers(lines)
	for _, l := range lines {
		chain := cmp.Or(chainOfClass(l), strings.TrimPrefix(l.Object, "chain "))
		idle := balancer.MatchString(chain) && !used[l.Family+chain]
		isGroup := group.MatchString(l.Text) || group.MatchString(l.Object) && l.Text == ""
		if idle || isGroup || l.Object == "set reserved-ids" || affinitySet.MatchString(l.Object) ||
			client.MatchString(l.Text) || strings.HasPrefix(l.Text, "policy = ") {
			continue
		}
		for _, one := range past {
			if one.object.MatchString(l.Object) {
				l.Text = one.text.ReplaceAllString(l.Text, one.with)
			}
		}
		l.Object = group.ReplaceAllString(portChain.ReplaceAllString(l.Object, "${1}N"), "affinity$1.")
		all = append(all, l.String())
	}
	slices.Sort(all)
	return all
}
