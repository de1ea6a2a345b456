package manifest

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"k8s.io/klog/v2/textlogger"
)

// TestReportLog checks the log lines of klog.
func TestReportLog(t *testing.T) {
	var text bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&text)))
	files := map[string]string{
		"a.yaml": documents(serviceAt("web", "10.0.0"), "kind: ["),
		"b.yaml": documents("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n", node, node),
	}
	dir := newFakeDir()
	dir.state.read(inMemory(files), logger)
	header := regexp.MustCompile(`(?m)^([EI])[0-9 :.]+ report.go:[0-9]+\]`)
	got := header.ReplaceAllString(text.String(), "$1")
	want := strings.Join([]string{
		`E "Failed to load manifest" err="a.yaml: document 1: Service default/web: spec.clusterIPs[0]: ` +
			`Invalid value: \"10.0.0\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"`,
		`E "Failed to load manifest" err="a.yaml: document 2: yaml: line 6: did not find expected node content"`,
		`I "Skipped an object of an unsupported kind" object="v1 Pod web" file="b.yaml" document=1`,
		`E "Object is defined more than once" err="b.yaml: document 3: Node worker: ` +
			`already defined in b.yaml: document 2, which stays active"`,
	}, "\n") + "\n"
	if got != want {
		t.Errorf("got log\n%s\nwant\n%s", got, want)
	}
}
