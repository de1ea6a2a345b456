package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

func daemonSet(t *testing.T, all objects, name string) *appsv1.DaemonSet {
	t.Helper()
	return get[*appsv1.DaemonSet](t, all, "DaemonSet "+name)
}

// TestPrivileges checks that the proxy has one capability and of the host
// only the network. Only the init container has more privileges.
func TestPrivileges(t *testing.T) {
	for overlay, want := range map[string]struct {
		name, initContainers string
	}{
		"base":                  {"nftproxy", "sysctls"},
		"overlays/kind":         {"nftproxy", "sysctls"},
		"overlays/k3s":          {"nftproxy", "sysctls"},
		"overlays/kubeadm":      {"kube-proxy", "sysctls"},
		"overlays/unprivileged": {"nftproxy", ""},
	} {
		pod := daemonSet(t, kustomize(t, overlay), want.name).Spec.Template.Spec
		for _, v := range pod.Volumes {
			if v.ConfigMap == nil && v.EmptyDir == nil {
				t.Errorf("%s: volume %s is neither a ConfigMap nor an emptyDir", overlay, v.Name)
			}
		}
		if pod.HostPID || pod.HostIPC || !pod.HostNetwork {
			t.Errorf("%s: got hostPID %v, hostIPC %v, hostNetwork %v",
				overlay, pod.HostPID, pod.HostIPC, pod.HostNetwork)
		}
		s := container(t, pod.Containers, "kube-proxy").SecurityContext
		if *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem {
			t.Errorf("%s: got securityContext %+v", overlay, s)
		}
		capabilities := &corev1.Capabilities{
			Add: []corev1.Capability{"NET_ADMIN"}, Drop: []corev1.Capability{"ALL"},
		}
		if diff := cmp.Diff(capabilities, s.Capabilities); diff != "" {
			t.Errorf("%s: capabilities (-want +got):\n%s", overlay, diff)
		}
		var names []string
		for _, c := range pod.InitContainers {
			names = append(names, c.Name)
			if !slices.Contains(c.Command, "--init-only") {
				t.Errorf("%s: got command %q of init container %s", overlay, c.Command, c.Name)
			}
		}
		if got := strings.Join(names, " "); got != want.initContainers {
			t.Errorf("%s: got init containers %q, want %q", overlay, got, want.initContainers)
		}
	}
}

// TestRoleBinding checks that the pods run with the role of the manifests. A
// test of cmd/kube-proxy/app compares its rules with the requests of the proxy.
func TestRoleBinding(t *testing.T) {
	all := kustomize(t, "base")
	binding := get[*rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding nftproxy")
	account := get[*corev1.ServiceAccount](t, all, "ServiceAccount nftproxy")
	pod := daemonSet(t, all, "nftproxy").Spec.Template.Spec
	subject := rbacv1.Subject{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}
	if !slices.Equal(binding.Subjects, []rbacv1.Subject{subject}) || pod.ServiceAccountName != account.Name ||
		binding.RoleRef.Name != "nftproxy" {
		t.Errorf("got role %s bound to %v, and pods that run as %s",
			binding.RoleRef.Name, binding.Subjects, pod.ServiceAccountName)
	}
}
