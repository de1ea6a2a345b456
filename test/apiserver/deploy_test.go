package apiserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestDaemonSet runs nftproxy like the DaemonSet of deploy/: first the
// privileged init container, then the container with its command line, in a
// root file system with the program and the volumes only, with the capability
// of the DaemonSet and a read-only /proc/sys.
func TestDaemonSet(t *testing.T) {
	t.Parallel()
	if subjectName() != product {
		return
	}
	for _, tc := range []struct {
		name   string
		volume func(w *world) map[string]string
	}{
		{"deploy", func(w *world) map[string]string {
			name := w.daemonSet().Spec.Template.Spec.Volumes[0].ConfigMap.Name // with a hash
			object, err := w.Admin().CoreV1().ConfigMaps(accountNamespace).Get(w.ctx(), name, metav1.GetOptions{})
			w.must(err)
			return object.Data
		}},
		{"kubeadm", kubeadmVolume},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			web := w.createService("web", "a1 b1")
			root := w.rootFileSystem(tc.volume(w))
			pod := w.daemonSet().Spec.Template.Spec
			init := w.container(root, &pod.InitContainers[0])
			init.start()
			if code := init.awaitEnd(); code != 0 {
				t.Fatalf("init container: exit code %d", code)
			}
			const closeWait = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"
			if timeout := w.run(w.Node1.Namespace, "cat", closeWait); timeout != "3600\n" {
				t.Errorf("%s after the init container: got %s, want 3600", closeWait, timeout)
			}
			if limit, err := os.ReadFile(filepath.Join(root, "nf_conntrack_max")); err != nil ||
				string(limit) == "1000\n" {
				t.Errorf("nf_conntrack_max after the init container: got %s (%v), want another value", limit, err)
			}
			p := w.container(root, &pod.Containers[0])
			p.startSynced()
			web.servedBy("a1 b1")
			p.movesFlows(web, "a1", "b1")
			p.terminate()
		})
	}
}

// daemonSet returns the DaemonSet of deploy/.
func (w *world) daemonSet() *appsv1.DaemonSet {
	w.t.Helper()
	set, err := w.Admin().AppsV1().DaemonSets(accountNamespace).Get(w.ctx(), accountName, metav1.GetOptions{})
	w.must(err)
	return set
}

// kubeadmVolume returns the data of kubeadm's ConfigMap kube-proxy.
func kubeadmVolume(w *world) map[string]string {
	archive, err := txtar.ParseFile(repository + "/cmd/kube-proxy/config/testdata/scripts/kubeadm.txtar")
	w.must(err)
	return map[string]string{
		"config.conf": string(archive.Files[0].Data),
		"kubeconfig.conf": fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
    server: %s
  name: default
contexts:
- context:
    cluster: default
    namespace: default
    user: default
  name: default
current-context: default
users:
- name: default
  user:
    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
`, w.URL()),
	}
}

// rootFileSystem creates a container's root file system, with the volumes of
// the ConfigMap and of the service account.
func (w *world) rootFileSystem(volume map[string]string) string {
	w.t.Helper()
	root := w.t.TempDir()
	files := map[string]string{
		"var/run/secrets/kubernetes.io/serviceaccount/token":  w.token,
		"var/run/secrets/kubernetes.io/serviceaccount/ca.crt": string(w.CA()),
	}
	for name, content := range volume {
		files["var/lib/kube-proxy/"+name] = content
	}
	for name, content := range files {
		path := filepath.Join(root, name)
		w.must(os.MkdirAll(filepath.Dir(path), 0o755))
		w.must(os.WriteFile(path, []byte(content), 0o644))
	}
	for _, folder := range []string{"proc", "usr/local/bin"} {
		w.must(os.MkdirAll(filepath.Join(root, folder), 0o755))
	}
	w.must(os.WriteFile(filepath.Join(root, "usr/local/bin/kube-proxy"), nil, 0o755)) // the program is mounted there
	// nf_conntrack_max is writable in the host's network namespace only.
	w.must(os.WriteFile(filepath.Join(root, "nf_conntrack_max"), []byte("1000\n"), 0o644))
	return root
}

// container returns the proxy in a container of the DaemonSet.
func (w *world) container(root string, c *corev1.Container) *proxy {
	w.t.Helper()
	p := w.bareProxy(product)
	p.flags = nil
	for _, arg := range c.Command[1:] {
		arg = strings.ReplaceAll(arg, "$(NODE_NAME)", w.Node1.Name)
		p.flags = append(p.flags, strings.ReplaceAll(arg, "$(API_SERVER)", w.URL()))
	}
	capabilities := "+all"
	lock := "true"
	if !ptr.Deref(c.SecurityContext.Privileged, false) {
		capabilities = "-all,+sys_chroot" // for chroot below
		for _, name := range c.SecurityContext.Capabilities.Add {
			capabilities += ",+" + strings.ToLower(string(name))
		}
		lock = "mount --rbind proc/sys proc/sys; mount -o remount,bind,ro proc/sys"
	}
	script := fmt.Sprintf(`cd %s
mount --bind "$1" .%s
shift
mount -t proc proc proc
mount --bind nf_conntrack_max proc/sys/net/netfilter/nf_conntrack_max
%s
exec setpriv --no-new-privs --inh-caps=-all --bounding-set=%s chroot . %[2]s "$@"`,
		root, c.Command[0], lock, capabilities)
	p.wrapper = []string{"unshare", "--mount", "sh", "-e", "-c", script, "sh"}
	return p
}
