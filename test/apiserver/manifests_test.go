package apiserver

import (
	"os/exec"
	"testing"
)

// TestManifestsAccepted checks that the API server accepts what the chart
// renders for each preset and what each kustomization renders, without unknown
// fields.
func TestManifestsAccepted(t *testing.T) {
	t.Parallel()
	if subjectName() != product {
		return
	}
	w := newBareWorld(t)
	w.kubectl("", "create", "serviceaccount", "default", "--namespace=kube-system") // a controller creates it elsewhere
	rendered := map[string]string{}
	for _, preset := range []string{"generic", "kubeadm", "kind", "k3s", "rke2", "talos", "eks"} {
		rendered["preset "+preset] = w.render("helm", "template", "nftproxy", "../../deploy/helm/nftproxy",
			"--namespace=kube-system", "--kube-version=v1.36.3", "--set=fullnameOverride=accepted,preset="+preset,
			"--set=apiServer=https://10.0.0.1:6443,config.clusterCIDR=10.244.0.0/16,metrics.dashboard.enabled=true")
	}
	for _, folder := range []string{"base", "overlays/kind", "overlays/k3s", "overlays/unprivileged",
		"overlays/kubeadm"} {
		rendered["kustomization "+folder] = w.render("kustomize", "build", "../../deploy/kustomize/"+folder)
	}
	for name, manifests := range rendered {
		out, err := w.Kubectl(w.ctx(), manifests, "apply", "--dry-run=server", "--validate=strict", "--filename=-")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s:\n%s", name, out)
	}
}

// render runs a tool of the module test/deploy and returns its standard
// output.
func (w *world) render(tool string, args ...string) string {
	w.t.Helper()
	cmd := exec.Command("go", append([]string{"tool", tool}, args...)...)
	cmd.Dir = "../deploy"
	out, err := cmd.Output()
	w.must(err)
	return string(out)
}
