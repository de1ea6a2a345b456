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
		c := get[*corev1.ConfigMap](t, kustomize(t, name), "ConfigMap nftproxy")
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

// TestAPIServerAddress checks that Helm refuses to render without an address
// of the API server. With kustomize, a key of the ConfigMap is missing, so
// that the kubelet cannot create the container.
func TestAPIServerAddress(t *testing.T) {
	if _, errs, err := helmTemplate(); err == nil || !strings.Contains(errs, "apiServer is not set") {
		t.Errorf("helm template without apiServer: got %v, %s", err, errs)
	}
	all := kustomize(t, "base")
	if address, ok := get[*corev1.ConfigMap](t, all, "ConfigMap nftproxy").Data["apiServer"]; ok {
		t.Errorf("got address %s in the base, want none", address)
	}
	pod := daemonSet(t, all, "nftproxy").Spec.Template.Spec
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		ref := c.Env[1].ValueFrom.ConfigMapKeyRef
		if c.Env[1].Name != "API_SERVER" || ref == nil || ref.Key != "apiServer" || ref.Optional != nil {
			t.Errorf("container %s: got %+v, want API_SERVER from the ConfigMap", c.Name, c.Env[1])
		}
	}
	for overlay, want := range map[string]string{
		"overlays/kind": "https://kind-control-plane:6443", "overlays/k3s": "https://127.0.0.1:6444",
	} {
		c := get[*corev1.ConfigMap](t, kustomize(t, overlay), "ConfigMap nftproxy")
		if got := c.Data["apiServer"]; got != want {
			t.Errorf("%s: got API server %q, want %q", overlay, got, want)
		}
	}
}

// TestChartValues checks the errors of invalid values and the effect of
// optional values.
func TestChartValues(t *testing.T) {
	for _, tt := range []struct{ value, want string }{
		{"apiServer=10.0.0.1", "does not match pattern"},
		{"apiserver=" + apiServer, "additional properties 'apiserver' not allowed"},
		{"config.mode=iptables", "value must be one of '', 'nftables'"},
		{"metrics.podMonitor.enabled=true", "metrics.podMonitor needs metrics.expose"},
	} {
		_, errs, err := helmTemplate("--set=apiServer="+apiServer, "--set="+tt.value)
		if err == nil || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: got %v, %q; want %q", tt.value, err, errs, tt.want)
		}
	}
	all := helm(t, "--set=metrics.expose=true,metrics.annotations=true,image.tag=v9,extraArgs={-v=2}",
		"--set=podAnnotations.a=b,imagePullSecrets[0].name=s",
		"--set=extraEnv[0].name=GOMEMLIMIT,extraEnv[0].value=115MiB",
		"--set=config.mode=", "--set=affinity.nodeAffinity=null")
	d := daemonSet(t, all, "nftproxy").Spec.Template
	c := container(t, d.Spec.Containers, "kube-proxy")
	if c.Image != "ghcr.io/nftproxy/nftproxy:v9" || c.Command[len(c.Command)-1] != "-v=2" ||
		c.Env[2].Name != "GOMEMLIMIT" {
		t.Errorf("got image %s, command %q, environment %v", c.Image, c.Command, c.Env)
	}
	if d.Annotations["prometheus.io/port"] != "10249" || d.Annotations["a"] != "b" ||
		d.Spec.ImagePullSecrets[0].Name != "s" {
		t.Errorf("got annotations %v, pull secrets %v", d.Annotations, d.Spec.ImagePullSecrets)
	}
	config := get[*corev1.ConfigMap](t, all, "ConfigMap nftproxy").Data["config.conf"]
	if !strings.Contains(config, "metricsBindAddress: 0.0.0.0:10249\n") || !strings.Contains(config, `mode: ""`) {
		t.Errorf("got configuration:\n%s", config)
	}
	out, errs, err := helmTemplate("--set=apiServer="+apiServer,
		"--set=metrics.expose=true,metrics.podMonitor.enabled=true")
	if err != nil || !strings.Contains(out, "kind: PodMonitor") {
		t.Errorf("with a PodMonitor: got %v, %s", err, errs)
	}
}
