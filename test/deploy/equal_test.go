package deploy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestChartEqualsKustomization checks that the chart and the kustomizations
// render the same objects.
func TestChartEqualsKustomization(t *testing.T) {
	for _, tt := range []struct {
		kustomization string
		values        []string
	}{
		{"base", nil},
		{"overlays/unprivileged", []string{"--set=conntrack.initContainer.enabled=false"}},
		{"overlays/kind", []string{
			"--set=config.clusterCIDR=10.244.0.0/16\\,fd00:10:244::/56", "--set=config.conntrack.maxPerCore=0"}},
		{"overlays/k3s", []string{"--set=config.clusterCIDR=10.42.0.0/16\\,2001:cafe:42::/56"}},
	} {
		t.Run(tt.kustomization, func(t *testing.T) {
			fromKustomize, fromHelm := kustomizePatched(t, tt.kustomization), helm(t, tt.values...)
			for _, all := range []objects{fromKustomize, fromHelm} {
				parseConfiguration(t, get[*corev1.ConfigMap](t, all, "ConfigMap nftproxy"))
			}
			if diff := cmp.Diff(fromKustomize, fromHelm); diff != "" {
				t.Errorf("objects (-kustomize +Helm):\n%s", diff)
			}
		})
	}
}

// parseConfiguration converts the files in a ConfigMap to JSON, so that the
// order of fields and comments do not matter.
func parseConfiguration(t *testing.T, c *corev1.ConfigMap) {
	t.Helper()
	for _, key := range []string{"config.conf", "kubeconfig.conf"} {
		json, err := yaml.YAMLToJSON([]byte(c.Data[key]))
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		c.Data[key] = string(json)
	}
}

// TestKubeadmOverlay checks that the overlay renders only the DaemonSet of
// the base, with kubeadm's names.
func TestKubeadmOverlay(t *testing.T) {
	all := kustomize(t, "overlays/kubeadm")
	if len(all) != 1 {
		t.Errorf("got %d objects, want the DaemonSet only", len(all))
	}
	got := daemonSet(t, all, "kube-proxy")
	want := daemonSet(t, kustomize(t, "base"), "nftproxy")
	labels := map[string]string{"k8s-app": "kube-proxy"} // of kubeadm v1.36; the selector is immutable
	want.Name, want.Labels = "kube-proxy", labels
	want.Spec.Selector.MatchLabels, want.Spec.Template.Labels = labels, labels
	pod := &want.Spec.Template.Spec
	pod.ServiceAccountName, pod.Volumes[0].ConfigMap.Name = "kube-proxy", "kube-proxy"
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		containers[0].Command = without(containers[0].Command, "--master=$(API_SERVER)")
		containers[0].Env = containers[0].Env[:1]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("DaemonSet (-want +got):\n%s", diff)
	}
}

func without(all []string, s string) []string {
	var rest []string
	for _, x := range all {
		if x != s {
			rest = append(rest, x)
		}
	}
	return rest
}
