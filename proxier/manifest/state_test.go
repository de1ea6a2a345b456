package manifest

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// fakeDir is a directory in memory.
type fakeDir struct {
	files map[string]string // by name; a file with the text unreadable is unreadable
	state *state
	*recorder
}

const unreadable = "\x00unreadable"

func newFakeDir() *fakeDir {
	return &fakeDir{files: make(map[string]string), state: newState(), recorder: newRecorder()}
}

// read changes files, of which an empty text removes one, and reads the
// directory. It returns the log lines and the calls of the handler.
func (d *fakeDir) read(changes map[string]string) (lines, calls []string) {
	for name, text := range changes {
		d.files[name] = text
		if text == "" {
			delete(d.files, name)
		}
	}
	d.state.read(inMemory(d.files), klog.New(d.recorder))
	d.state.deliver(d.recorder)
	return d.takeLines(), d.take()
}

// inMemory returns the snapshot of a directory with these files.
func inMemory(files map[string]string) snapshot {
	snap := snapshot{contents: make(map[string]content)}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		snap.entries = append(snap.entries, entry{name: name})
		snap.contents[name] = content{data: []byte(files[name])}
		if files[name] == unreadable {
			snap.contents[name] = content{err: errors.New("permission denied")}
		}
	}
	return snap
}

// expect changes files, reads the directory and compares the results.
func (d *fakeDir) expect(t *testing.T, changes map[string]string, wantLines, wantCalls []string) {
	t.Helper()
	lines, calls := d.read(changes)
	expectLines(t, lines, wantLines)
	expectLines(t, calls, wantCalls)
}

// serviceAt returns the manifest of a Service with a clusterIP.
func serviceAt(name, clusterIP string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\n" +
		"spec: {clusterIP: " + clusterIP + ", ports: [{port: 80}]}\n"
}

func documents(texts ...string) string { return strings.Join(texts, "---\n") }

func TestLastValidVersionStaysActive(t *testing.T) {
	dir := newFakeDir()
	valid := documents(serviceAt("a", "10.0.0.1"), serviceAt("b", "10.0.0.2"))
	invalid := documents(serviceAt("a", "10.0.0.9"), serviceAt("b", "10.0.0"))
	problem := `: web.yaml: document 2: Service default/b: spec.clusterIPs[0]: Invalid value: "10.0.0": ` +
		"must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
	const (
		syntaxError = ": web.yaml: document 1: yaml: line 1: did not find expected node content"
		refused     = "E Failed to load manifest"
		kept        = "E Failed to load manifest, keeping its last valid version"
		recovered   = "I Manifest is valid again file=web.yaml"
	)
	dir.expect(t, map[string]string{"web.yaml": invalid}, []string{refused + problem}, nil)
	dir.expect(t, map[string]string{"other.yaml": serviceAt("c", "10.0.0.3")}, nil, []string{"+ Service c 10.0.0.3"})
	dir.expect(t, map[string]string{"web.yaml": valid},
		[]string{recovered},
		[]string{"+ Service a 10.0.0.1", "+ Service b 10.0.0.2"})
	dir.expect(t, map[string]string{"web.yaml": invalid}, []string{kept + problem}, nil)
	dir.expect(t, nil, nil, nil)
	dir.expect(t, map[string]string{"web.yaml": "kind: ["}, []string{kept + syntaxError}, nil)
	dir.expect(t, map[string]string{"web.yaml": unreadable}, []string{kept + ": web.yaml: permission denied"}, nil)
	dir.expect(t, map[string]string{"web.yaml": unreadable}, nil, nil)
	dir.expect(t, map[string]string{"web.yaml": valid}, []string{recovered}, nil)
	dir.expect(t, map[string]string{"web.yaml": ""}, nil, []string{"- Service a 10.0.0.1", "- Service b 10.0.0.2"})
}

func TestOnlyNewProblemsAreLogged(t *testing.T) {
	dir := newFakeDir()
	lines, _ := dir.read(map[string]string{"web.yaml": documents(serviceAt("a", "10.0.1"), serviceAt("b", "10.0.2"))})
	if len(lines) != 2 {
		t.Errorf("got log %q, want a line for each of two invalid objects", lines)
	}
	lines, _ = dir.read(map[string]string{"web.yaml": documents(serviceAt("a", "10.0.1"), serviceAt("b", "10.0.3"))})
	if len(lines) != 1 || !strings.Contains(lines[0], `Invalid value: "10.0.3"`) {
		t.Errorf("got log %q, want a line for the changed problem", lines)
	}
	lines, _ = dir.read(map[string]string{"web.yaml": documents(serviceAt("a", "10.0.1"), serviceAt("b", "10.0.0.3"))})
	if len(lines) != 0 {
		t.Errorf("got log %q, want no line for a solved problem", lines)
	}
}

func TestWarningsAreLoggedOnce(t *testing.T) {
	dir := newFakeDir()
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"
	line := "I Skipped an object of an unsupported kind object=v1 Pod web file=web.yaml document="
	dir.expect(t, map[string]string{"web.yaml": pod}, []string{line + "1"}, nil)
	dir.expect(t, nil, nil, nil)
	dir.expect(t, map[string]string{"web.yaml": documents(node, pod)}, nil, []string{"+ Node worker"})
	dir.expect(t, map[string]string{"web.yaml": "kind: ["},
		[]string{"E Failed to load manifest, keeping its last valid version: " +
			"web.yaml: document 1: yaml: line 1: did not find expected node content"}, nil)
	dir.expect(t, map[string]string{"web.yaml": documents(node, pod)},
		[]string{"I Manifest is valid again file=web.yaml"}, nil)
	dir.expect(t, map[string]string{"web.yaml": node}, nil, nil)
	dir.expect(t, map[string]string{"web.yaml": documents(node, pod)}, []string{line + "2"}, nil)
}

func TestDuplicates(t *testing.T) {
	dir := newFakeDir()
	duplicate := func(place, active string) string {
		return "E Object is defined more than once: " + place +
			": Service default/web: already defined in " + active + ", which stays active"
	}
	dir.expect(t, map[string]string{
		"a.yaml": node,
		"b.yaml": documents(serviceAt("web", "10.0.0.1"), serviceAt("web", "10.0.0.2")),
		"c.yaml": serviceAt("web", "10.0.0.3"),
	}, []string{
		duplicate("b.yaml: document 2", "b.yaml: document 1"),
		duplicate("c.yaml: document 1", "b.yaml: document 1"),
	}, []string{"+ Node worker", "+ Service web 10.0.0.1"})
	dir.expect(t, nil, nil, nil)
	// A new definition in a file that is first by name does not become
	// active.
	dir.expect(t, map[string]string{"a.yaml": serviceAt("web", "10.0.0.4")},
		[]string{duplicate("a.yaml: document 1", "b.yaml: document 1")},
		[]string{"- Node worker"})
	dir.expect(t, map[string]string{"b.yaml": serviceAt("web", "10.0.0.5")}, nil,
		[]string{"= Service web 10.0.0.1 10.0.0.5"})
	// When the active definition is removed, the first by name becomes active
	// in the same round.
	dir.expect(t, map[string]string{"b.yaml": node},
		[]string{duplicate("c.yaml: document 1", "a.yaml: document 1")},
		[]string{"+ Node worker", "= Service web 10.0.0.5 10.0.0.4"})
	dir.expect(t, map[string]string{"a.yaml": ""}, nil, []string{"= Service web 10.0.0.4 10.0.0.3"})
	dir.expect(t, map[string]string{"c.yaml": ""}, nil, []string{"- Service web 10.0.0.3"})
}

func TestInvalidFileHasNoDuplicates(t *testing.T) {
	dir := newFakeDir()
	lines, calls := dir.read(map[string]string{
		"a.yaml": documents(serviceAt("web", "10.0.0.1"), "kind: ["),
		"b.yaml": serviceAt("web", "10.0.0.2"),
	})
	if len(lines) != 1 || strings.Contains(lines[0], "more than once") {
		t.Errorf("got log %q, want one syntax error", lines)
	}
	expectLines(t, calls, []string{"+ Service web 10.0.0.2"})
}

func TestMovedObjectsDeliverNothing(t *testing.T) {
	dir := newFakeDir()
	dir.expect(t, map[string]string{
		"a.yaml": documents(service, endpointSlice),
		"b.yaml": documents(node, serviceCIDR),
	}, nil, []string{
		"ServiceCIDRs [10.96.0.0/16]", "+ Node worker", "+ EndpointSlice web-1", "+ Service web 10.96.0.1",
	})
	dir.expect(t, map[string]string{
		"a.yaml": "",
		"z.json": serviceJSON,
		"b.yaml": documents(serviceCIDR, endpointSlice, node),
	}, nil, nil)
	list := "apiVersion: v1\nkind: ServiceList\nitems:\n" +
		"- {metadata: {name: web}, spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}}\n"
	dir.expect(t, map[string]string{"z.json": "", "a.yaml": list}, nil, nil)
}

func TestOrderWithinRound(t *testing.T) {
	dir := newFakeDir()
	all := documents(service, endpointSlice, node, serviceCIDR)
	dir.read(map[string]string{"a.yaml": all})
	renamed := strings.NewReplacer("name: web", "name: shop", "name: worker", "name: boss",
		"10.96.0.0/16", "fd00::/108").Replace(all)
	dir.expect(t, map[string]string{"a.yaml": renamed}, nil, []string{
		"ServiceCIDRs [fd00::/108]",
		"+ Node boss", "+ EndpointSlice shop-1", "+ Service shop 10.96.0.1",
		"- Service web 10.96.0.1", "- EndpointSlice web-1", "- Node worker",
	})
}

func TestServiceCIDRs(t *testing.T) {
	dir := newFakeDir()
	object := func(name, cidrs string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: " + name + "}\n" +
			"spec: {cidrs: [" + cidrs + "]}\n"
	}
	dir.expect(t, map[string]string{"a.yaml": object("b", "10.97.0.0/16, 'fd00::/108'")}, nil,
		[]string{"ServiceCIDRs [10.97.0.0/16 fd00::/108]"})
	dir.expect(t, map[string]string{"b.yaml": object("a", "10.96.0.0/16, 'fd00::/108'")}, nil,
		[]string{"ServiceCIDRs [10.96.0.0/16 10.97.0.0/16 fd00::/108]"})
	dir.expect(t, map[string]string{"c.yaml": object("c", "10.96.0.0/16")}, nil, nil)
	dir.expect(t, map[string]string{"a.yaml": "", "b.yaml": "", "c.yaml": ""}, nil, []string{"ServiceCIDRs []"})
}

// TestUpdatesHaveDeliveredObject checks that old is the pointer that was
// delivered before, also if an equal object was read from another file in
// between.
func TestUpdatesHaveDeliveredObject(t *testing.T) {
	s := newState()
	read := func(name, text string) []change {
		s.read(inMemory(map[string]string{name: text}), klog.Background())
		return s.takeChanges()
	}
	first := read("a.yaml", service)
	if moved := read("b.yaml", service); len(moved) != 0 {
		t.Fatalf("got changes %v, want none for a moved object", moved)
	}
	second := read("b.yaml", serviceAt("web", "10.0.0.2"))
	if len(first) != 1 || len(second) != 1 || first[0].new != second[0].old {
		t.Errorf("got changes %v, then %v, want the object of the first as the old one of the second", first, second)
	}
}

func TestUnchangedDocumentsAreReused(t *testing.T) {
	f := file{name: "web.yaml"}.parse(newDecoder(), []byte(documents(service, node)))
	renamed := strings.Replace(node, "worker", "boss", 1)
	next := f.parse(newDecoder(), []byte(documents("null\n", serviceAt("api", "10.0.0.2"), service, renamed)))
	expectLines(t, next.active.describe(), []string{
		"web.yaml: document 2: Service default/api",
		"web.yaml: document 3: Service default/web",
		"web.yaml: document 4: Node boss",
	})
	if f.active.objects[0].value != next.active.objects[1].value {
		t.Error("got a new object of an unchanged document, want the old one")
	}
}

func TestProblemOfMovedDocument(t *testing.T) {
	f := file{name: "web.yaml"}.parse(newDecoder(), []byte("kind: [\n"))
	f = f.parse(newDecoder(), []byte("# a comment\n---\nkind: [\n"))
	expectLines(t, parsed{problems: f.problems}.describe(),
		[]string{"E web.yaml: document 1: yaml: line 3: did not find expected node content"})
}
