package deploy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
)

// TestConfigurations checks that each configuration is a
// KubeProxyConfiguration without unknown fields, and that its kubeconfig
// exists and is valid together with --master.
func TestConfigurations(t *testing.T) {
	types := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(types, serializer.EnableStrict).UniversalDeserializer()
	for _, name := range []string{"base", "overlays/kind", "overlays/k3s", "overlays/unprivileged"} {
		c := configMap(t, kustomize(t, name))
		if !ptr.Deref(c.Immutable, false) {
			t.Errorf("%s: ConfigMap %s is not immutable", name, c.Name)
		}
		var config v1alpha1.KubeProxyConfiguration
		if _, _, err := decoder.Decode([]byte(c.Data["config.conf"]), nil, &config); err != nil {
			t.Fatalf("%s: config.conf: %v", name, err)
		}
		if config.Mode != "nftables" {
			t.Errorf("%s: got mode %s, want nftables", name, config.Mode)
		}
		if _, ok := c.Data[strings.TrimPrefix(config.ClientConnection.Kubeconfig, "/var/lib/kube-proxy/")]; !ok {
			t.Errorf("%s: %s does not exist", name, config.ClientConnection.Kubeconfig)
		}
		kubeconfig, err := clientcmd.Load([]byte(c.Data["kubeconfig.conf"]))
		if err != nil {
			t.Fatalf("%s: kubeconfig.conf: %v", name, err)
		}
		overrides := &clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: apiServer}}
		// The files of the service account exist only in pods.
		merged, err := clientcmd.NewDefaultClientConfig(*kubeconfig, overrides).RawConfig()
		if err != nil {
			t.Fatal(err)
		}
		context := merged.Contexts[merged.CurrentContext]
		const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
		if got := merged.Clusters[context.Cluster].CertificateAuthority; got != account+"ca.crt" {
			t.Errorf("%s: got CA %q", name, got)
		}
		if got := merged.AuthInfos[context.AuthInfo].TokenFile; got != account+"token" {
			t.Errorf("%s: got token %q", name, got)
		}
	}
}
