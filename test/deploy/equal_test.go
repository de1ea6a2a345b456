package deploy

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/yaml"
)

// TestChartEqualsKustomization checks that the chart and the kustomizations
// render the same objects, apart from the differences that normalize removes.
func TestChartEqualsKustomization(t *testing.T) {
	for _, tt := range []struct {
		kustomization string
		values        []string
	}{
		{"base", []string{generic}},
		{"overlays/unprivileged", []string{generic, "--set=conntrack.initContainer.enabled=false"}},
		{"overlays/kind", []string{"--set=preset=kind,apiServer=" + apiServer}},
		{"overlays/k3s", []string{"--set=preset=k3s,apiServer=" + apiServer}},
	} {
		t.Run(tt.kustomization, func(t *testing.T) {
			fromKustomize, fromHelm := kustomizeUsed(t, tt.kustomization), decode(t, helmText(t, tt.values...))
			if a, b := configMap(t, kustomize(t, tt.kustomization)), configMap(t, fromKustomize); a.Name == b.Name {
				t.Errorf("got ConfigMap %s before and after a change", a.Name)
			}
			normalize(t, fromKustomize)
			normalize(t, fromHelm)
			if diff := cmp.Diff(fromKustomize, fromHelm); diff != "" {
				t.Errorf("objects (-kustomize +Helm):\n%s", diff)
			}
		})
	}
}

// normalize removes the hash from the name of the ConfigMap, the labels that
// only Helm sets, and the test of the chart. With kustomize, the address of
// the API server is in the ConfigMap; normalize moves it to the pods.
func normalize(t *testing.T, all objects) {
	t.Helper()
	delete(all, "Pod nftproxy-test")
	set, c := daemonSet(t, all, "nftproxy"), configMap(t, all)
	delete(all, "ConfigMap "+c.Name)
	c.Name = "nftproxy"
	all["ConfigMap nftproxy"] = c
	pod := &set.Spec.Template.Spec
	pod.Volumes[0].ConfigMap.Name = c.Name
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			if env := &containers[i].Env[1]; env.ValueFrom != nil {
				env.Value, env.ValueFrom = c.Data[env.ValueFrom.ConfigMapKeyRef.Key], nil
			}
		}
	}
	delete(c.Data, "apiServer")
	parseConfiguration(t, c)
	labels := []map[string]string{set.Spec.Selector.MatchLabels, set.Spec.Template.Labels}
	for _, object := range all {
		m, err := meta.Accessor(object)
		if err != nil {
			t.Fatal(err)
		}
		labels = append(labels, m.GetLabels())
	}
	for _, l := range labels {
		maps.DeleteFunc(l, func(name, _ string) bool { return name != "app.kubernetes.io/name" && name != "k8s-app" })
	}
}

// parseConfiguration converts the files in a ConfigMap to JSON, so that the
// order of fields and comments do not matter.
func parseConfiguration(t *testing.T, c *corev1.ConfigMap) {
	t.Helper()
	for key, text := range c.Data {
		json, err := yaml.YAMLToJSON([]byte(text))
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
		containers[0].Command = slices.DeleteFunc(containers[0].Command, func(arg string) bool {
			return arg == "--master=$(API_SERVER)"
		})
		containers[0].Env = containers[0].Env[:1]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("DaemonSet (-want +got):\n%s", diff)
	}
}
