package manifest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/nftproxy/nftproxy/test/script"
)

// TestScripts runs the scripts about a directory of manifests, m. These are
// their steps, besides the standard ones such as cp, mv, rm and symlink:
//
//	service FILE NAME=IP…  writes a manifest with Services to a file in m
//	read                   reads m, and prints log lines and calls of the handler
//	poll                   prints whether m differs from the last read
//	reload                 reads m, and prints log lines with all problems, and calls
//	run                    reads m, now and after each change
//	hangup                 makes run reload m
//	await TEXT             prints lines of run until one contains a text
//	follow                 makes the watch follow m
//	signal                 waits for a signal of the watch
//	parse FILE             prints the objects, problems and warnings of a file
//	status                 prints the state of m, with the number of reads since which problems exist
//
// Calls are printed as + (new), = (updated) or - (deleted), with the address of
// a Service; an update has its old address, then its new one.
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Setup: func(e *script.Env) (map[string]script.Command, error) {
		d := &directory{t: e.T, path: filepath.Join(e.WorkDir, "m"), recorder: newRecorder(e.T)}
		d.source = newSource(e.T, d.path, d.recorder)
		d.source.logger = d.logger()
		d.source.now = func() time.Time { return time.Unix(int64(d.reads), 0) }
		e.T.Cleanup(d.source.watch.close)
		return script.Steps(map[string]any{
			"service": d.writeServices,
			"read":    d.read,
			"poll":    d.poll,
			"reload":  d.reload,
			"run":     d.run,
			"hangup":  d.source.Reload,
			"await":   d.await,
			"follow":  d.follow,
			"signal":  d.signal,
			"parse":   parseFile,
			"status":  d.status,
		}), os.MkdirAll(d.path, 0o755)
	}})
}

// timeout limits the time that tests wait for a condition.
const timeout = 20 * time.Second

// directory is the directory of a script, and its Source.
type directory struct {
	t      testing.TB
	path   string
	source *Source
	reads  int
	*recorder
}

func newSource(t testing.TB, dir string, h Handler) *Source {
	t.Helper()
	source, err := New(Config{Dir: dir, Handler: h})
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func (d *directory) writeServices(file string, addresses ...string) error {
	var services []string
	for _, arg := range addresses {
		name, address, _ := strings.Cut(arg, "=")
		services = append(services, serviceAt(name, address))
	}
	path, written := filepath.Join(d.path, file), filepath.Join(d.path, ".written") // replaced at once
	err := os.WriteFile(written, []byte(documents(services...)), 0o644)
	return cmp.Or(err, os.Rename(written, path))
}

func (d *directory) read() (string, error) {
	if d.reads++; d.reads > 1 {
		d.source.refresh()
		return d.take(), nil
	}
	err := d.source.start()
	return d.take(), err
}

func (d *directory) status() string {
	s := d.source.Status()
	text := fmt.Sprintf("%d files, %d objects, %d problems\n", s.Files, s.Objects, s.ProblemCount)
	for _, p := range s.Problems {
		kept := map[bool]string{true: " (kept)"}[p.Kept]
		text += fmt.Sprintf("%s %d:%d since %d: %s%s\n", p.File, p.Document, p.Line, p.Since.Unix(), p.Text, kept)
	}
	return header.ReplaceAllString(text, "")
}

// since matches when a problem was seen first.
var since = regexp.MustCompile(`(since=")[^"]+`)

func (d *directory) reload() string {
	d.reads++
	d.source.readAgain()
	return since.ReplaceAllString(d.take(), "${1}TIME")
}

func (d *directory) poll() string {
	if d.source.unchanged() {
		return "unchanged\n"
	}
	return "changed\n"
}

func (d *directory) run(s *script.Script) (string, error) {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), d.logger()))
	done := make(chan error, 1)
	go func() { done <- d.source.Run(ctx) }()
	select {
	case err := <-done:
		cancel()
		return d.take(), err
	case <-d.synced:
	}
	s.Defer(func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Errorf("Run: %v", err)
		}
	})
	return d.take(), nil
}

func (d *directory) await(words ...string) (string, error) {
	deadline := time.After(timeout)
	for {
		if text, found := d.takeUntil(strings.Join(words, " ")); found {
			return text, nil
		}
		select {
		case <-d.written:
		case <-deadline:
			return "", errors.New("timed out; got\n" + d.take())
		}
	}
}

func (d *directory) follow() string {
	ctx := context.Background()
	settle(ctx, d.source.watch.changed)
	d.source.watch.follow(d.logger())
	settle(ctx, d.source.watch.changed)
	return d.take()
}

func (d *directory) signal() (string, error) {
	select {
	case <-d.source.watch.changed:
		return d.take(), nil
	case <-time.After(timeout):
		return "", errors.New("timed out")
	}
}

func parseFile(s *script.Script, name string) string {
	var text strings.Builder
	f := file{name: "web.yaml"}.parse(newDecoder(), []byte(s.ReadFile(name)))
	for _, o := range f.active.objects {
		fmt.Fprintf(&text, "%s: %s\n", o.place, o.key)
	}
	for _, p := range f.problems {
		fmt.Fprintf(&text, "E %v\n", p)
	}
	for _, w := range f.active.warnings {
		fmt.Fprintf(&text, "W %s: %s: %s\n", w.place, w.subject, w.text)
	}
	return placeOfParse.ReplaceAllString(text.String(), "$2$1")
}

// placeOfParse matches the line and the document of a problem, or the document
// of an object. They are printed as 2:6 or 2.
var placeOfParse = regexp.MustCompile(`web.yaml(:\d+)?: document (\d+)`)

// serviceAt returns the manifest of a Service with a clusterIP.
func serviceAt(name, clusterIP string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\n" +
		"spec: {clusterIP: '" + clusterIP + "', ports: [{port: 80}]}\n"
}

func documents(texts ...string) string { return strings.Join(texts, "---\n") }

// lines is text that goroutines write, and that a script takes.
type lines struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{} // has a buffer of one signal
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.written <- struct{}{}:
	default:
	}
	return l.text.Write(text)
}

// header matches the parts of a log line that differ between runs, and the
// name of the logger.
var header = regexp.MustCompile(`(?m)(?:^([EI])[0-9 :.]+ [a-z]+.go:[0-9]+\]| logger="manifest"|/\S*/script-[a-z-]+/)`)

// take returns the lines since the previous take.
func (l *lines) take() string {
	text, _ := l.takeUntil("")
	return text
}

// takeUntil takes the lines until one contains a text.
func (l *lines) takeUntil(last string) (text string, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := header.ReplaceAllString(l.text.String(), "$1")
	_, after, found := strings.Cut(all, last)
	if !found {
		return "", false
	}
	rest := ""
	if last != "" {
		_, rest, _ = strings.Cut(after, "\n")
	}
	l.text.Reset()
	l.text.WriteString(rest)
	return strings.TrimSuffix(all, rest), true
}

func (l *lines) logger() klog.Logger {
	return textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(l)))
}

// recorder is a Handler that records its calls. It checks that the old object
// of an update is the pointer that was delivered before.
type recorder struct {
	lines
	t         testing.TB
	delivered map[objectKey]runtime.Object
	synced    chan struct{} // closed by the first Sync
}

func newRecorder(t testing.TB) *recorder {
	return &recorder{
		lines:     lines{written: make(chan struct{}, 1)},
		t:         t,
		delivered: make(map[objectKey]runtime.Object),
		synced:    make(chan struct{}),
	}
}

func (r *recorder) call(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }

// update records an update. old is nil if the object is new.
func update[T interface {
	runtime.Object
	comparable
}](r *recorder, old, new T) {
	var none T
	key := keyOf(new)
	if before := r.delivered[key]; old == none && before != nil || old != none && before != runtime.Object(old) {
		r.t.Errorf("%s: the old object is not the one that was delivered before", key)
	}
	r.delivered[key] = new
	if old == none {
		r.call("+ %s%s", describe(new), address(new))
	} else {
		r.call("= %s%s%s", describe(new), address(old), address(new))
	}
}

func (r *recorder) remove(object runtime.Object) {
	if key := keyOf(object); r.delivered[key] != object {
		r.t.Errorf("%s: the deleted object is not the one that was delivered before", key)
	}
	delete(r.delivered, keyOf(object))
	r.call("- %s%s", describe(object), address(object))
}

func describe(object runtime.Object) string {
	key := keyOf(object)
	return string(key.Kind) + " " + key.Name
}

func address(object runtime.Object) string {
	if service, ok := object.(*corev1.Service); ok {
		return " " + service.Spec.ClusterIP
	}
	return ""
}

func (r *recorder) OnServiceUpdate(old, new *corev1.Service) { update(r, old, new) }
func (r *recorder) OnServiceDelete(service *corev1.Service)  { r.remove(service) }
func (r *recorder) OnNodeUpdate(old, new *corev1.Node)       { update(r, old, new) }
func (r *recorder) OnNodeDelete(node *corev1.Node)           { r.remove(node) }

func (r *recorder) OnEndpointSliceUpdate(old, new *discoveryv1.EndpointSlice) { update(r, old, new) }
func (r *recorder) OnEndpointSliceDelete(slice *discoveryv1.EndpointSlice)    { r.remove(slice) }

func (r *recorder) OnServiceSynced()                     { r.call("Services synced") }
func (r *recorder) OnEndpointSlicesSynced()              { r.call("EndpointSlices synced") }
func (r *recorder) OnNodeSynced()                        { r.call("Node synced") }
func (r *recorder) OnServiceCIDRsChanged(cidrs []string) { r.call("ServiceCIDRs %v", cidrs) }

func (r *recorder) Sync() {
	r.call("Sync")
	select {
	case <-r.synced:
	default:
		close(r.synced)
	}
}
