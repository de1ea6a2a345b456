package manifest

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// fakeDir is a directory in memory that is read again and again.
type fakeDir struct {
	files map[string]string // by name; unreadable if the text is the one below
	state *state
	*recorder
}

const unreadable = "\x00unreadable"

func newFakeDir() *fakeDir {
	return &fakeDir{files: make(map[string]string), state: newState(), recorder: newRecorder()}
}

// read reads the directory with some changes, an empty text removing a file. It returns the lines of the log
// and the calls of the handler.
func (d *fakeDir) read(changes map[string]string) (lines, calls []string) {
	for name, text := range changes {
		d.files[name] = text
		if text == "" {
			delete(d.files, name)
		}
	}
	for _, n := range d.state.read(inMemory(d.files)) {
		n.log(klog.New(d.recorder))
	}
	r := run{Source: New(Config{Handler: d.recorder}), state: d.state}
	r.deliver()
	return d.takeLines(), d.take()
}

// inMemory returns the snapshot of a directory with the files given.
func inMemory(files map[string]string) snapshot {
	taken := snapshot{contents: make(map[string]content)}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		taken.entries = append(taken.entries, entry{name: name})
		taken.contents[name] = content{data: []byte(files[name])}
		if files[name] == unreadable {
			taken.contents[name] = content{err: errors.New("permission denied")}
		}
	}
	return taken
}

// expect reads the directory and compares.
func (d *fakeDir) expect(t *testing.T, changes map[string]string, wantLines, wantCalls []string) {
	t.Helper()
	lines, calls := d.read(changes)
	expectLines(t, lines, wantLines)
	expectLines(t, calls, wantCalls)
}

// serviceAt gives the manifest of a Service with a ClusterIP.
func serviceAt(name, clusterIP string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\nspec: {clusterIP: " + clusterIP + ", ports: [{port: 80}]}\n"
}

func documents(texts ...string) string { return strings.Join(texts, "---\n") }

func TestLastGoodVersionStays(t *testing.T) {
	dir := newFakeDir()
	good := documents(serviceAt("a", "10.0.0.1"), serviceAt("b", "10.0.0.2"))
	bad := documents(serviceAt("a", "10.0.0.9"), serviceAt("b", "10.0.0"))
	problem := `: web.yaml: document 2: Service default/b: spec.clusterIPs[0]: Invalid value: "10.0.0": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`
	const (
		rejected = "E Cannot use manifest"
		kept     = "E Cannot use manifest, its last good version stays in force"
	)
	dir.expect(t, map[string]string{"web.yaml": bad}, []string{rejected + problem}, nil)
	dir.expect(t, map[string]string{"other.yaml": serviceAt("c", "10.0.0.3")}, nil, []string{"+ Service c 10.0.0.3"})
	dir.expect(t, map[string]string{"web.yaml": good},
		[]string{"I Manifest is good again file=web.yaml"},
		[]string{"+ Service a 10.0.0.1", "+ Service b 10.0.0.2"})
	dir.expect(t, map[string]string{"web.yaml": bad}, []string{kept + problem}, nil)
	dir.expect(t, nil, nil, nil)
	dir.expect(t, map[string]string{"web.yaml": "kind: ["}, []string{kept + ": web.yaml: document 1: yaml: line 1: did not find expected node content"}, nil)
	dir.expect(t, map[string]string{"web.yaml": unreadable}, []string{kept + ": web.yaml: permission denied"}, nil)
	dir.expect(t, map[string]string{"web.yaml": unreadable}, nil, nil)
	dir.expect(t, map[string]string{"web.yaml": good}, []string{"I Manifest is good again file=web.yaml"}, nil)
	dir.expect(t, map[string]string{"web.yaml": ""}, nil, []string{"- Service a 10.0.0.1", "- Service b 10.0.0.2"})
}

func TestOnlyNewProblemsAreLogged(t *testing.T) {
	dir := newFakeDir()
	lines, _ := dir.read(map[string]string{"web.yaml": documents(serviceAt("a", "10.0.1"), serviceAt("b", "10.0.2"))})
	if len(lines) != 2 {
		t.Errorf("two invalid objects give the lines %q", lines)
	}
	lines, _ = dir.read(map[string]string{"web.yaml": documents(serviceAt("a", "10.0.1"), serviceAt("b", "10.0.3"))})
	if len(lines) != 1 || !strings.Contains(lines[0], `Invalid value: "10.0.3"`) {
		t.Errorf("one changed problem gives the lines %q", lines)
	}
	lines, _ = dir.read(map[string]string{"web.yaml": documents(serviceAt("a", "10.0.1"), serviceAt("b", "10.0.0.3"))})
	if len(lines) != 0 {
		t.Errorf("one problem less gives the lines %q", lines)
	}
}

func TestNoticesAreLoggedOnce(t *testing.T) {
	dir := newFakeDir()
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"
	line := "I Skipped an object of a kind that is not read object=v1 Pod web file=web.yaml document="
	dir.expect(t, map[string]string{"web.yaml": pod}, []string{line + "1"}, nil)
	dir.expect(t, nil, nil, nil)
	dir.expect(t, map[string]string{"web.yaml": documents(node, pod)}, nil, []string{"+ Node worker"})
	dir.expect(t, map[string]string{"web.yaml": "kind: ["},
		[]string{"E Cannot use manifest, its last good version stays in force: web.yaml: document 1: yaml: line 1: did not find expected node content"}, nil)
	dir.expect(t, map[string]string{"web.yaml": documents(node, pod)}, []string{"I Manifest is good again file=web.yaml"}, nil)
	dir.expect(t, map[string]string{"web.yaml": node}, nil, nil)
	dir.expect(t, map[string]string{"web.yaml": documents(node, pod)}, []string{line + "2"}, nil)
}

func TestDuplicates(t *testing.T) {
	dir := newFakeDir()
	duplicate := func(loser, winner string) string {
		return "E Object is defined more than once: " + loser + ": Service default/web: is defined already in " + winner + ", which stays in force"
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
	// A definition that comes first by name does not displace the one in force.
	dir.expect(t, map[string]string{"a.yaml": serviceAt("web", "10.0.0.4")},
		[]string{duplicate("a.yaml: document 1", "b.yaml: document 1")},
		[]string{"- Node worker"})
	dir.expect(t, map[string]string{"b.yaml": serviceAt("web", "10.0.0.5")}, nil, []string{"= Service web 10.0.0.1 10.0.0.5"})
	// When it goes, the first by name comes in, in the same round.
	dir.expect(t, map[string]string{"b.yaml": node},
		[]string{duplicate("c.yaml: document 1", "a.yaml: document 1")},
		[]string{"+ Node worker", "= Service web 10.0.0.5 10.0.0.4"})
	dir.expect(t, map[string]string{"a.yaml": ""}, nil, []string{"= Service web 10.0.0.4 10.0.0.3"})
	dir.expect(t, map[string]string{"c.yaml": ""}, nil, []string{"- Service web 10.0.0.3"})
}

func TestDuplicateInInvalidFileIsNoDuplicate(t *testing.T) {
	dir := newFakeDir()
	lines, calls := dir.read(map[string]string{
		"a.yaml": documents(serviceAt("web", "10.0.0.1"), "kind: ["),
		"b.yaml": serviceAt("web", "10.0.0.2"),
	})
	if len(lines) != 1 || strings.Contains(lines[0], "more than once") {
		t.Errorf("log is %q", lines)
	}
	expectLines(t, calls, []string{"+ Service web 10.0.0.2"})
}

func TestMovesDeliverNothing(t *testing.T) {
	dir := newFakeDir()
	dir.expect(t, map[string]string{"a.yaml": documents(service, endpointSlice), "b.yaml": documents(node, serviceCIDR)}, nil,
		[]string{"ServiceCIDRs [10.96.0.0/16]", "+ Node worker", "+ EndpointSlice web-1", "+ Service web 10.96.0.1"})
	dir.expect(t, map[string]string{"a.yaml": "", "z.json": serviceJSON, "b.yaml": documents(serviceCIDR, endpointSlice, node)}, nil, nil)
	list := "apiVersion: v1\nkind: ServiceList\nitems: [{metadata: {name: web}, spec: {clusterIP: 10.96.0.1, ports: [{port: 80, protocol: TCP}]}}]\n"
	dir.expect(t, map[string]string{"z.json": "", "a.yaml": list}, nil, nil)
}

func TestOrderOfARound(t *testing.T) {
	dir := newFakeDir()
	all := documents(service, endpointSlice, node, serviceCIDR)
	dir.read(map[string]string{"a.yaml": all})
	renamed := strings.NewReplacer("name: web", "name: shop", "name: worker", "name: boss", "10.96.0.0/16", "fd00::/108").Replace(all)
	dir.expect(t, map[string]string{"a.yaml": renamed}, nil, []string{
		"ServiceCIDRs [fd00::/108]",
		"+ Node boss", "+ EndpointSlice shop-1", "+ Service shop 10.96.0.1",
		"- Service web 10.96.0.1", "- EndpointSlice web-1", "- Node worker",
	})
}

func TestServiceCIDRs(t *testing.T) {
	dir := newFakeDir()
	more := func(name, cidrs string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: " + name + "}\nspec: {cidrs: [" + cidrs + "]}\n"
	}
	dir.expect(t, map[string]string{"a.yaml": more("b", "10.97.0.0/16, 'fd00::/108'")}, nil, []string{"ServiceCIDRs [10.97.0.0/16 fd00::/108]"})
	dir.expect(t, map[string]string{"b.yaml": more("a", "10.96.0.0/16, 'fd00::/108'")}, nil, []string{"ServiceCIDRs [10.96.0.0/16 10.97.0.0/16 fd00::/108]"})
	dir.expect(t, map[string]string{"c.yaml": more("c", "10.96.0.0/16")}, nil, nil)
	dir.expect(t, map[string]string{"a.yaml": "", "b.yaml": "", "c.yaml": ""}, nil, []string{"ServiceCIDRs []"})
}

// TestUpdatesPassWhatWasDelivered checks that old is the very object of the call before, also when the same
// object was read from elsewhere in between.
func TestUpdatesPassWhatWasDelivered(t *testing.T) {
	s := newState()
	read := func(name, text string) []change {
		s.read(inMemory(map[string]string{name: text}))
		return s.takeChanges()
	}
	first := read("a.yaml", service)
	if moved := read("b.yaml", service); len(moved) != 0 {
		t.Fatalf("moving gives %v", moved)
	}
	second := read("b.yaml", serviceAt("web", "10.0.0.2"))
	if len(first) != 1 || len(second) != 1 || first[0].new != second[0].old {
		t.Errorf("delivered %v, then %v", first, second)
	}
}

func TestUnchangedDocumentsAreNotParsedAgain(t *testing.T) {
	f := file{name: "web.yaml"}.parse(newSerializer(), []byte(documents(service, node)))
	again := f.parse(newSerializer(), []byte(documents("null\n", serviceAt("api", "10.0.0.2"), service, strings.Replace(node, "worker", "boss", 1))))
	expectLines(t, again.inForce.describe(), []string{
		"web.yaml: document 2: Service default/api", "web.yaml: document 3: Service default/web", "web.yaml: document 4: Node boss",
	})
	if f.inForce.objects[0].value != again.inForce.objects[1].value {
		t.Error("an unchanged document was parsed again")
	}
}

func TestProblemsMoveWithTheirDocument(t *testing.T) {
	f := file{name: "web.yaml"}.parse(newSerializer(), []byte("kind: [\n"))
	f = f.parse(newSerializer(), []byte("# a comment\n---\nkind: [\n"))
	expectProblems(t, parsed{problems: f.problems}, "web.yaml: document 1: ", []string{"yaml: line 3: did not find expected node content"})
}
