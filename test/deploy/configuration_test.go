package deploy

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// TestConfigurations: all configurations are KubeProxyConfigurations, without unknown fields, and name a kubeconfig that exists and that
// makes a client configuration with the address that --master gives.
func TestConfigurations(t *testing.T) {
	types := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(types, serializer.EnableStrict).UniversalDeserializer()
	for _, name := range []string{"base", "overlays/kind", "overlays/k3s", "overlays/unprivileged"} {
		c := get[*corev1.ConfigMap](t, kustomize(t, name), "ConfigMap nftproxy")
		var config v1alpha1.KubeProxyConfiguration
		if _, _, err := decoder.Decode([]byte(c.Data["config.conf"]), nil, &config); err != nil {
			t.Fatalf("%s: config.conf: %v", name, err)
		}
		if config.Mode != "nftables" {
			t.Errorf("%s: mode %s", name, config.Mode)
		}
		if _, ok := c.Data[strings.TrimPrefix(config.ClientConnection.Kubeconfig, "/var/lib/kube-proxy/")]; !ok {
			t.Errorf("%s: nothing is at %s", name, config.ClientConnection.Kubeconfig)
		}
		kubeconfig, err := clientcmd.Load([]byte(c.Data["kubeconfig.conf"]))
		if err != nil {
			t.Fatalf("%s: kubeconfig.conf: %v", name, err)
		}
		overrides := &clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: apiServer}}
		// Only names are checked: the service account's files exist in pods alone.
		merged, err := clientcmd.NewDefaultClientConfig(*kubeconfig, overrides).RawConfig()
		if err != nil {
			t.Fatal(err)
		}
		context := merged.Contexts[merged.CurrentContext]
		const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
		if got := merged.Clusters[context.Cluster].CertificateAuthority; got != account+"ca.crt" {
			t.Errorf("%s: CA %q", name, got)
		}
		if got := merged.AuthInfos[context.AuthInfo].TokenFile; got != account+"token" {
			t.Errorf("%s: token %q", name, got)
		}
	}
}

// TestAPIServerIsNeeded: where no address of the API server is given, Helm says so, and the kubelet does: the container cannot be
// created, for a key is missing in the ConfigMap.
func TestAPIServerIsNeeded(t *testing.T) {
	if _, errs, err := helmTemplate(); err == nil || !strings.Contains(errs, "apiServer is not set") {
		t.Errorf("helm template without apiServer: %v, %s", err, errs)
	}
	all := kustomize(t, "base")
	if address, ok := get[*corev1.ConfigMap](t, all, "ConfigMap nftproxy").Data["apiServer"]; ok {
		t.Errorf("the base has the address %s", address)
	}
	pod := daemonSet(t, all, "nftproxy").Spec.Template.Spec
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		ref := c.Env[1].ValueFrom.ConfigMapKeyRef
		if c.Env[1].Name != "API_SERVER" || ref == nil || ref.Key != "apiServer" || ref.Optional != nil {
			t.Errorf("container %s: %+v", c.Name, c.Env[1])
		}
	}
	for overlay, want := range map[string]string{
		"overlays/kind": "https://kind-control-plane:6443", "overlays/k3s": "https://127.0.0.1:6444",
	} {
		if got := get[*corev1.ConfigMap](t, kustomize(t, overlay), "ConfigMap nftproxy").Data["apiServer"]; got != want {
			t.Errorf("%s: API server %q, want %q", overlay, got, want)
		}
	}
}

// TestChartValues: wrong values are refused, and the optional ones have their effect.
func TestChartValues(t *testing.T) {
	for _, tt := range []struct{ value, want string }{
		{"apiServer=10.0.0.1", "does not match pattern"},
		{"apiserver=" + apiServer, "additional properties 'apiserver' not allowed"},
		{"config.mode=iptables", "value must be one of '', 'nftables'"},
		{"metrics.podMonitor.enabled=true", "metrics.podMonitor needs metrics.expose"},
	} {
		_, errs, err := helmTemplate("--set=apiServer="+apiServer, "--set="+tt.value)
		if err == nil || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: %v, %q; want %q", tt.value, err, errs, tt.want)
		}
	}
	all := helm(t, "--set=metrics.expose=true,metrics.annotations=true,image.tag=v9,extraArgs={-v=2},podAnnotations.a=b,imagePullSecrets[0].name=s",
		"--set=extraEnv[0].name=GOMEMLIMIT,extraEnv[0].value=115MiB", "--set=config.mode=", "--set=affinity.nodeAffinity=null")
	d := daemonSet(t, all, "nftproxy").Spec.Template
	c := container(t, d.Spec.Containers, "kube-proxy")
	if c.Image != "ghcr.io/nftproxy/nftproxy:v9" || c.Command[len(c.Command)-1] != "-v=2" || c.Env[2].Name != "GOMEMLIMIT" {
		t.Errorf("image %s, command %q, environment %v", c.Image, c.Command, c.Env)
	}
	if d.Annotations["prometheus.io/port"] != "10249" || d.Annotations["a"] != "b" || d.Spec.ImagePullSecrets[0].Name != "s" {
		t.Errorf("annotations %v, pull secrets %v", d.Annotations, d.Spec.ImagePullSecrets)
	}
	config := get[*corev1.ConfigMap](t, all, "ConfigMap nftproxy").Data["config.conf"]
	if !strings.Contains(config, "metricsBindAddress: 0.0.0.0:10249\n") || !strings.Contains(config, `mode: ""`) {
		t.Errorf("configuration:\n%s", config)
	}
	out, errs, err := helmTemplate("--set=apiServer="+apiServer, "--set=metrics.expose=true,metrics.podMonitor.enabled=true")
	if err != nil || !strings.Contains(out, "kind: PodMonitor") {
		t.Errorf("with a PodMonitor: %v, %s", err, errs)
	}
}
