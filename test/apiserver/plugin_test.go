package apiserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/test/lab"
)

// plugin is the plugin of kubectl, in a world with a pod on each node.
type plugin struct {
	*world
	path     string // the environment variable PATH
	kubelets []*kubelet
}

// newPlugin builds the plugin and starts kubelets. The nftproxy in the pod of
// node1 is the product.
func newPlugin(t *testing.T) *plugin {
	t.Helper()
	w := newWorld(t)
	folder := t.TempDir()
	binary := filepath.Join(folder, "kubectl-nftproxy")
	build := exec.Command("go", "build", "-o", binary, "./cmd/kubectl-nftproxy")
	build.Dir = repository
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	w.must(os.Symlink(binary, filepath.Join(folder, "kubectl_complete-nftproxy")))
	p := &plugin{world: w, path: folder + ":" + filepath.Dir(program("kubectl")) + ":/usr/bin:/bin"}
	for _, node := range w.Nodes() {
		w.createPod(node)
		p.kubelets = append(p.kubelets, w.startKubelet(node, t.TempDir()))
	}
	image := t.TempDir()
	w.must(os.Symlink(program(product), filepath.Join(image, "nftproxy")))
	p.kubelets[0].programs.Store(&image)
	return p
}

// createPod creates a running pod of kubeadm's DaemonSet on a node.
func (w *world) createPod(node *lab.Node) {
	w.t.Helper()
	pods := w.Admin().CoreV1().Pods(accountNamespace)
	created, err := pods.Create(w.ctx(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy-" + node.Name,
			Labels: map[string]string{"k8s-app": "kube-proxy"}},
		Spec: corev1.PodSpec{
			NodeName: node.Name, HostNetwork: true, ServiceAccountName: accountName,
			Containers: []corev1.Container{
				{Name: "sidecar", Image: "sidecar"}, {Name: "kube-proxy", Image: "registry.k8s.io/kube-proxy:v1.36.3"},
			},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	w.setState(created, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
}

// setState sets the state of the proxy's container.
func (w *world) setState(pod *corev1.Pod, state corev1.ContainerState) {
	w.t.Helper()
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "kube-proxy", State: state}},
	}
	_, err := w.Admin().CoreV1().Pods(accountNamespace).UpdateStatus(w.ctx(), pod, metav1.UpdateOptions{})
	w.must(err)
}

// script replaces the nftproxy in the pod of a node with a script.
func (p *plugin) script(node int, lines string) {
	p.t.Helper()
	folder := p.t.TempDir()
	p.must(os.WriteFile(filepath.Join(folder, "nftproxy"), []byte("#!/bin/sh\n"+lines), 0o755))
	p.kubelets[node].programs.Store(&folder)
}

// run runs a command line of kubectl, and returns its output and exit code.
func (p *plugin) run(commandLine string) string {
	p.t.Helper()
	return p.start("kubectl", strings.Fields(commandLine)...)
}

func (p *plugin) start(name string, args ...string) string {
	p.t.Helper()
	cmd := p.pods["b1"].Command(p.ctx(), "env", append([]string{"PATH=" + p.path, name}, args...)...)
	cmd.Env = []string{"KUBECONFIG=" + p.AdminKubeconfig(), "HOME=" + p.t.TempDir()}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		p.t.Fatal(err)
	}
	return fmt.Sprintf("%sexit code %d\n", out, cmd.ProcessState.ExitCode())
}

// expect runs kubectl and compares its output.
func (p *plugin) expect(commandLine, want string) {
	p.t.Helper()
	if got := p.run(commandLine); got != want {
		p.t.Errorf("kubectl %s: got\n%s\nwant\n%s", commandLine, got, want)
	}
}

// TestPlugin runs the plugin with kubectl and kubelets.
func TestPlugin(t *testing.T) {
	t.Parallel()
	if subjectName() != product {
		return
	}
	p := newPlugin(t)
	web := p.createService("web", "a1 b1")
	p.subject().startSynced()

	t.Run("kubectl finds the plugin", func(t *testing.T) {
		if got := p.run("plugin list"); !strings.Contains(got, "/kubectl-nftproxy\n") ||
			strings.Contains(got, "warning") {
			t.Errorf("got %s", got)
		}
	})
	t.Run("nftproxy answers in its pod", func(t *testing.T) {
		line := "nftproxy explain " + web.Spec.ClusterIP + ":80 --node node1 -o yaml"
		got := p.run(line)
		if !strings.Contains(got, "default/web") || !strings.HasSuffix(got, "exit code 0\n") {
			t.Errorf("kubectl %s: got %s", line, got)
		}
		if help := p.run("nftproxy explain --help"); !strings.Contains(help, "hypothetical connection") {
			t.Errorf("help: got %s", help)
		}
	})
	t.Run("status of all nodes", func(t *testing.T) { p.testStatus() })
	t.Run("status of a hung node", func(t *testing.T) { p.testHungNode() })
	t.Run("completion", func(t *testing.T) { p.testCompletion() })

	p.script(0, `echo "one $*"`)
	p.script(1, "echo 'two <&>'; echo broken >&2; exit 3")
	t.Run("all nodes", func(t *testing.T) { p.testAllNodes() })
	t.Run("one node", func(t *testing.T) { p.testOneNode() })
	t.Run("problems", func(t *testing.T) { p.testProblems() })
}

// testStatus compares a table without the times of node1.
func (p *plugin) testStatus() {
	p.script(1, `echo '{"state": "degraded", "problems": ["a sync failed", "no Node"], "proxy": {"version": "v9",
		"time": "2026-11-22T10:00:00Z", "started": "2026-11-20T10:00:00Z", "families": [{"services": 7,
			"endpoints": 9}]}}'
		exit 1`)
	got := regexp.MustCompile(`  +\d+m?s `).ReplaceAllString(p.run("nftproxy status"), "  0s ")
	want := regexp.MustCompile(`^NODE   STATE     VERSION +AGE +LAST SYNC  SERVICES  ENDPOINTS
node1  healthy   v\S+  0s +0s ago +2/1 +4/4
node2  degraded  v9 +2d +none +7 +9

node2: a sync failed
node2: no Node
exit code 1
$`)
	if !want.MatchString(got) {
		p.t.Errorf("got status\n%s\nwant\n%s", got, want)
	}
	p.script(1, "echo 'nftproxy: broken' >&2; exit 2")
	if got := p.run("nftproxy status --node node2,node1"); !strings.Contains(got, "node2  unreachable  -  ") ||
		!strings.HasSuffix(got, "\nnode2: nftproxy: broken\nexit code 2\n") {
		p.t.Errorf("got status\n%s", got)
	}
}

// testHungNode runs status while a node does not answer.
func (p *plugin) testHungNode() {
	p.script(1, "exec sleep 60")
	begin := time.Now()
	got := p.run("nftproxy status --node-timeout 2s")
	if !strings.Contains(got, "node1  healthy ") ||
		!strings.HasSuffix(got, "\nnode2: pod kube-proxy-node2: no answer within 2s\nexit code 2\n") {
		p.t.Errorf("got status\n%s", got)
	}
	if took := time.Since(begin); took > 30*time.Second {
		p.t.Errorf("status took %v", took)
	}
	p.expect("nftproxy status --node-timeout x",
		"kubectl nftproxy: --node-timeout \"x\" is not a time greater than 0, such as 10s\nexit code 1\n")
}

func (p *plugin) testCompletion() {
	for line, want := range map[string]string{
		"nftproxy --node ":                                       "node1\nnode2\n:4\n",
		"nftproxy explain --node=node2":                          "node2\n:4\n",
		"nftproxy -n kube-":                                      "kube-node-lease\nkube-public\nkube-system\n:4\n",
		"nftproxy --context ":                                    "test\n:4\n",
		"nftproxy --node node1 expl":                             "explain\tExplain where",
		"nftproxy explain --protocol ":                           "tcp\nudp\nsctp\n:4\n",
		"nftproxy explain --al":                                  "--all-nodes\n:4\n",
		"nftproxy explain --node=node1 --output --context test ": "text\nwide\njson\nyaml\n:4\n",
		"nftproxy --node nowhere ":                               ":1\n",
	} {
		args := append([]string{"-c", `kubectl __complete "$@" 2>/dev/null`, "sh"}, strings.Split(line, " ")...)
		got := p.start("sh", args...)
		if !strings.HasPrefix(got, want) {
			p.t.Errorf("completion of kubectl %s: got\n%s\nwant\n%s", line, got, want)
		}
	}
}

func (p *plugin) testAllNodes() {
	p.expect("nftproxy doctor -v --context=test",
		"NODE node1\none doctor -v\n\nNODE node2\ntwo <&>\nbroken\nexit code 3\n")
	p.script(0, `echo '{"healthy": true}'`)
	p.script(1, `echo '{"healthy": "<&>"}'; exit 1`)
	p.expect("nftproxy flows web --all-nodes -o json",
		"{\n  \"node1\": {\n    \"healthy\": true\n  },\n  \"node2\": {\n    \"healthy\": \"<&>\"\n  }\n}\nexit "+
			"code 1\n")
	p.script(0, "echo 'healthy: true'; echo 'rows: 5'")
	p.script(1, "echo 'nftproxy: no \"proxy\"' >&2; exit 2")
	p.expect("nftproxy doctor --output yaml --node node2 --node=node1",
		"node2:\n  error: \"nftproxy: no \\\"proxy\\\"\"\nnode1:\n  healthy: true\n  rows: 5\nexit code 2\n")
}

func (p *plugin) testOneNode() {
	p.script(1, "echo two; exit 3")
	p.expect("nftproxy services --node=node2 -o json", "two\nexit code 3\n")
	p.expect("nftproxy services", "kubectl nftproxy: services runs on one node: "+
		"set --node to one of node1, node2, or --all-nodes\nexit code 1\n")
	p.expect("nftproxy status --node node3", "kubectl nftproxy: node \"node3\" has no pods with label "+
		"k8s-app=kube-proxy in namespace kube-system; nodes with them: node1, node2\nexit code 1\n")
	for _, terminal := range []bool{true, false} {
		if line := "kubectl nftproxy services --node node1"; terminal {
			p.start("script", "--quiet", "--return", "--command", line, "/dev/null")
		} else {
			p.start("sh", "-c", line)
		}
		if got := p.kubelets[0].terminal.Load(); got != terminal {
			p.t.Errorf("got a terminal in the pod: %v, want %v", got, terminal)
		}
	}
}

func (p *plugin) testProblems() {
	p.expect("nftproxy status -l app=other", "kubectl nftproxy: no pods with label app=other in namespace "+
		"kube-system: set --namespace and --selector of nftproxy\nexit code 1\n")
	p.expect("nftproxy status --context=other",
		"kubectl nftproxy: list the pods: error: context \"other\" does not exist\nexit code 1\n")
	p.expect("nftproxy --verbose status", "kubectl nftproxy: unknown flag before the verb: --verbose\nexit code 1\n")

	empty := p.t.TempDir()
	p.kubelets[1].programs.Store(&empty)
	p.expect("nftproxy diff --node node2", "kubectl nftproxy: node node2: pod kube-proxy-node2 has no program "+
		"nftproxy: its image registry.k8s.io/kube-proxy:v1.36.3 is not the image of nftproxy\nexit code 2\n")

	pod, err := p.Admin().CoreV1().Pods(accountNamespace).Get(p.ctx(), "kube-proxy-node2", metav1.GetOptions{})
	p.must(err)
	p.setState(pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}})
	p.expect("nftproxy status -o json --node node2,node1",
		"{\n  \"node1\": {\n    \"error\": \"\"\n  },\n  \"node2\": {\n"+
			"    \"error\": \"pod kube-proxy-node2 is not running: CrashLoopBackOff\"\n  }\n}\nexit code 2\n")

	p.must(p.kubelets[0].close())
	want := regexp.MustCompile(`^kubectl nftproxy: node node1: pod kube-proxy-node1: .*connection refused.*\n` +
		`exit code 2\n$`)
	if got := p.run("nftproxy status --node node1"); !want.MatchString(got) {
		p.t.Errorf("without a kubelet: got %s", got)
	}
}
