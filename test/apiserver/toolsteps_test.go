package apiserver

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/tools/txtar"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// toolSteps are the role, the DaemonSet and the manifests of deploy/, and the
// commands nftproxy and kubectl nftproxy.
func (s *story) toolSteps() map[string]any {
	return map[string]any{
		"root":      func(volume string) { s.root = s.rootFileSystem(volume) },
		"accepted":  s.accepted,
		"leftovers": s.leftovers,
		"doctor":    func(checks []string) (string, error) { return s.doctor(checks) },
		"read-root": func(args []string) (string, error) {
			text, err := os.ReadFile(filepath.Join(s.root, args[0]))
			return string(text), err
		},
		"kubelet":      func(node, folder string) { s.startKubelet(node, s.script.MkAbs(folder)) },
		"kill-kubelet": func(node string) error { return s.kubelets[node].close() },
		"program": func(args []string) {
			path := filepath.Join(s.script.MkAbs(args[0]), "nftproxy")
			_ = os.Remove(path) // a symbolic link
			s.must(os.WriteFile(path, []byte("#!/bin/sh\n"+args[1]+"\n"), 0o755))
		},
		"terminal": func(node string) bool { return s.kubelets[node].terminal.Load() },
		"user":     s.user,
		"complete": func(args []string) (string, error) {
			out, err := s.user(append([]string{"sh", "-c", `kubectl __complete "$@" 2>/dev/null`, "sh"}, args...))
			return regexp.MustCompile(`exit code 0\n$`).ReplaceAllString(out, ""), err
		},
	}
}

// accepted renders the chart with a preset, or a kustomization, and returns an
// error if the API server refuses a manifest or does not know a field.
func (s *story) accepted(kind, name string) (string, error) {
	tool := []string{"kustomize", "build", "../../deploy/kustomize/" + name}
	if kind == "preset" {
		tool = []string{"helm", "template", "nftproxy", "../../deploy/helm/nftproxy", "--namespace=kube-system",
			"--kube-version=v1.37.2", "--set=fullnameOverride=accepted,preset=" + name,
			"--set=apiServer=https://10.0.0.1:6443,config.clusterCIDR=10.244.0.0/16,metrics.dashboard.enabled=true"}
	}
	cmd := exec.Command("go", append([]string{"tool"}, tool...)...)
	cmd.Dir = "../deploy"
	manifests, err := cmd.Output()
	s.must(err)
	return s.kubectl(string(manifests), "apply", "--dry-run=server", "--validate=strict", "--filename=-"), nil
}

// leftovers returns the chains of kube-proxy's iptables mode and the rules
// that use them, without those that other programs may use.
func (s *story) leftovers(variant string) string {
	// The kubelet has chains with such names, and other programs use
	// KUBE-MARK-MASQ.
	const names = "SERVICES|NODEPORTS|POSTROUTING|FORWARD|PROXY-FIREWALL|EXTERNAL-SERVICES|" +
		"SVC-|SEP-|EXT-|SVL-|FW-|PROXY-CANARY"
	ours := regexp.MustCompile("(?m)^.*KUBE-(" + names + ").*\n")
	found := ""
	for _, family := range []string{"iptables", "ip6tables"} {
		rules := s.run(s.Node1.Namespace, family+"-"+variant+"-save")
		found += strings.Join(ours.FindAllString(rules, -1), "")
	}
	return found
}

// doctor runs `nftproxy doctor` on node1, and returns the results of checks.
func (w *world) doctor(checks []string) (string, error) {
	command := filepath.Join(w.t.TempDir(), "nftproxy")
	w.must(os.Symlink(program(product), command))
	out, runErr := w.Node1.Command(w.ctx(), command, "doctor", "-o", "json").Output()
	var report struct {
		Findings []struct{ Check, Result, Reason string }
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return "", fmt.Errorf("%w: %w: %s", runErr, err, out)
	}
	results := map[string]string{}
	for _, f := range report.Findings {
		results[f.Check] = f.Result
	}
	var text strings.Builder
	for _, check := range checks {
		fmt.Fprintln(&text, results[check])
	}
	return text.String(), nil
}

// daemonSet returns the DaemonSet of deploy/.
func (s *story) daemonSet() *appsv1.DaemonSet {
	set, err := s.Admin().AppsV1().DaemonSets(accountNamespace).Get(s.ctx(), accountName, metav1.GetOptions{})
	s.must(err)
	return set
}

// rootFileSystem creates a container's root file system, with the volumes of
// the ConfigMap of deploy/ or kubeadm, and of the service account.
func (s *story) rootFileSystem(volume string) string {
	root := filepath.Join(s.t.TempDir(), volume)
	write := func(name, content string, mode os.FileMode) {
		path := filepath.Join(root, name)
		s.must(os.MkdirAll(filepath.Dir(path), 0o755))
		s.must(os.WriteFile(path, []byte(content), mode))
	}
	const account, config = "var/run/secrets/kubernetes.io/serviceaccount/", "var/lib/kube-proxy/"
	write(account+"token", s.token, 0o644)
	write(account+"ca.crt", string(s.CA()), 0o644)
	write("usr/local/bin/kube-proxy", "", 0o755) // the program is mounted there
	// nf_conntrack_max is writable in the host's network namespace only.
	write("nf_conntrack_max", "1000\n", 0o644)
	s.must(os.Mkdir(filepath.Join(root, "proc"), 0o755))
	if volume == "kubeadm" {
		archive, err := txtar.ParseFile(repository + "/cmd/kube-proxy/config/testdata/scripts/kubeadm.txtar")
		s.must(err)
		write(config+"config.conf", string(archive.Files[0].Data), 0o644)
		kubeconfig, err := os.ReadFile("testdata/kubeadm.kubeconfig")
		s.must(err)
		write(config+"kubeconfig.conf", strings.ReplaceAll(string(kubeconfig), "$SERVER", s.URL()), 0o644)
		return root
	}
	name := s.daemonSet().Spec.Template.Spec.Volumes[0].ConfigMap.Name // with a hash
	object, err := s.Admin().CoreV1().ConfigMaps(accountNamespace).Get(s.ctx(), name, metav1.GetOptions{})
	s.must(err)
	for name, content := range object.Data {
		write(config+name, content, 0o644)
	}
	return root
}

// container returns the proxy in a container of the DaemonSet: the init
// container, or the other one.
func (s *story) container(name string) *proxy {
	pod := s.daemonSet().Spec.Template.Spec
	c := pod.Containers[0]
	if name == "init" {
		c = pod.InitContainers[0]
	}
	p := s.proxy(product)
	p.flags = nil
	for _, arg := range c.Command[1:] {
		arg = strings.ReplaceAll(arg, "$(NODE_NAME)", s.Node1.Name)
		p.flags = append(p.flags, strings.ReplaceAll(arg, "$(API_SERVER)", s.URL()))
	}
	capabilities, lock := "+all", "true"
	if !ptr.Deref(c.SecurityContext.Privileged, false) {
		capabilities = "-all,+sys_chroot" // for chroot below
		for _, name := range c.SecurityContext.Capabilities.Add {
			capabilities += ",+" + strings.ToLower(string(name))
		}
		lock = "mount --rbind proc/sys proc/sys; mount -o remount,bind,ro proc/sys"
	}
	text := fmt.Sprintf(`cd %s
mount --bind "$1" .%s
shift
mount -t proc proc proc
mount --bind nf_conntrack_max proc/sys/net/netfilter/nf_conntrack_max
%s
exec setpriv --no-new-privs --inh-caps=-all --bounding-set=%s chroot . %[2]s "$@"`,
		s.root, c.Command[0], lock, capabilities)
	p.wrapper = []string{"unshare", "--mount", "sh", "-e", "-c", text, "sh"}
	return p
}
