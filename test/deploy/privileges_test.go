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

// TestPrivileges: the proxy has one capability and nothing of the host but its network; only the init container has more.
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
			if v.ConfigMap == nil {
				t.Errorf("%s: volume %s is not a ConfigMap", overlay, v.Name)
			}
		}
		if pod.HostPID || pod.HostIPC || !pod.HostNetwork {
			t.Errorf("%s: hostPID %v, hostIPC %v, hostNetwork %v", overlay, pod.HostPID, pod.HostIPC, pod.HostNetwork)
		}
		s := container(t, pod.Containers, "kube-proxy").SecurityContext
		if *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem {
			t.Errorf("%s: securityContext %+v", overlay, s)
		}
		if diff := cmp.Diff(&corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}, Drop: []corev1.Capability{"ALL"}}, s.Capabilities); diff != "" {
			t.Errorf("%s: capabilities:\n%s", overlay, diff)
		}
		var names []string
		for _, c := range pod.InitContainers {
			names = append(names, c.Name)
			if !slices.Contains(c.Command, "--init-only") {
				t.Errorf("%s: init container %s is %q", overlay, c.Name, c.Command)
			}
		}
		if got := strings.Join(names, " "); got != want.initContainers {
			t.Errorf("%s: init containers %q, want %q", overlay, got, want.initContainers)
		}
	}
}

// TestRole: the service account may read what the proxy watches, and write events.
func TestRole(t *testing.T) {
	all := kustomize(t, "base")
	got := map[string]string{}
	for _, rule := range get[*rbacv1.ClusterRole](t, all, "ClusterRole nftproxy").Rules {
		got[strings.Join(rule.APIGroups, ",")+"/"+strings.Join(rule.Resources, ",")] = strings.Join(rule.Verbs, ",")
	}
	want := map[string]string{
		"/services":                       "list,watch",
		"/nodes":                          "get,list,watch",
		"discovery.k8s.io/endpointslices": "list,watch",
		"networking.k8s.io/servicecidrs":  "list,watch",
		"events.k8s.io/events":            "create,patch,update",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules: want (-), got (+):\n%s", diff)
	}
	binding := get[*rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding nftproxy")
	account := get[*corev1.ServiceAccount](t, all, "ServiceAccount nftproxy")
	pod := daemonSet(t, all, "nftproxy").Spec.Template.Spec
	subject := rbacv1.Subject{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}
	if !slices.Equal(binding.Subjects, []rbacv1.Subject{subject}) || pod.ServiceAccountName != account.Name || binding.RoleRef.Name != "nftproxy" {
		t.Errorf("role %s is bound to %v; the pods run as %s", binding.RoleRef.Name, binding.Subjects, pod.ServiceAccountName)
	}
}
