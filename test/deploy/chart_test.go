package deploy

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// minimum has the smallest set of values for each preset.
var minimum = map[string]string{
	"generic": "apiServer=https://10.0.0.1:6443,config.clusterCIDR=10.244.0.0/16",
	"kubeadm": "apiServer=https://10.0.0.1:6443,config.clusterCIDR=10.244.0.0/16",
	"kind":    "", "k3s": "", "rke2": "", "talos": "",
	"eks": "apiServer=https://example.eks.amazonaws.com",
}

// TestPresets checks that each preset renders with its smallest set of values,
// and what it sets.
func TestPresets(t *testing.T) {
	type settings struct{ APIServer, Config string }
	const common = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\n" +
		"clientConnection:\n  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf\n"
	const end = "kind: KubeProxyConfiguration\nmode: nftables\noomScoreAdj: -997\n"
	want := map[string]settings{
		"generic": {"https://10.0.0.1:6443", "clusterCIDR: 10.244.0.0/16\n"},
		"kubeadm": {"https://10.0.0.1:6443", "clusterCIDR: 10.244.0.0/16\n"},
		"kind": {"https://kind-control-plane:6443",
			"clusterCIDR: 10.244.0.0/16,fd00:10:244::/56\nconntrack:\n  maxPerCore: 0\n"},
		"k3s":   {"https://127.0.0.1:6444", "clusterCIDR: 10.42.0.0/16,2001:cafe:42::/56\n"},
		"rke2":  {"https://127.0.0.1:6443", "clusterCIDR: 10.42.0.0/16,2001:cafe:42::/56\n"},
		"talos": {"https://127.0.0.1:7445", "clusterCIDR: 10.244.0.0/16,fc00:db8:10::/56\n"},
		"eks": {"https://example.eks.amazonaws.com",
			"detectLocal:\n  interfaceNamePrefix: eni\ndetectLocalMode: InterfaceNamePrefix\n"},
	}
	got := map[string]settings{}
	for preset, values := range minimum {
		all := decode(t, helmText(t, "--set=preset="+preset, "--set="+values))
		pod := daemonSet(t, all, "nftproxy").Spec.Template.Spec
		config := strings.TrimPrefix(configMap(t, all).Data["config.conf"], common)
		got[preset] = settings{pod.Containers[0].Env[1].Value, strings.TrimSuffix(config, end)}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("presets (-want +got):\n%s", diff)
	}
	var presets map[string]any
	text, err := os.ReadFile(filepath.Join(chart, "presets.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &presets); err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(presets)), slices.Sorted(maps.Keys(minimum)); !slices.Equal(got, want) {
		t.Errorf("got presets %q, want %q", got, want)
	}
}

// TestRefusals checks that Helm refuses values with which nftproxy would not
// work, and that the errors name the value and the choices.
func TestRefusals(t *testing.T) {
	const server = "apiServer=" + apiServer
	for values, want := range map[string][]string{
		"":               {"apiServer is not set", "kubectl config view"},
		"preset=eks":     {"apiServer is not set", "aws eks describe-cluster"},
		"preset=kubeadm": {"apiServer is not set", "get configmap kubeadm-config", "controlPlaneEndpoint"},
		server: {"config.clusterCIDR is not set", "config.clusterCIDR=", "config.detectLocalMode=NodeCIDR",
			"config.detectLocalMode=InterfaceNamePrefix,config.detectLocal.interfaceNamePrefix=PREFIX",
			"config.detectLocalMode=BridgeInterface,config.detectLocal.bridgeInterface=NAME"},
		server + ",preset=kubeadm":                             {"config.clusterCIDR is not set", "podSubnet"},
		server + ",preset=k3s,config.clusterCIDR=":             {"config.clusterCIDR is not set"},
		server + ",config.detectLocalMode=InterfaceNamePrefix": {"config.detectLocal.interfaceNamePrefix is not set"},
		server + ",config.detectLocalMode=BridgeInterface":     {"config.detectLocal.bridgeInterface is not set"},

		"apiServer=10.0.0.1":      {"at '/apiServer': '10.0.0.1' does not match pattern"},
		"apiserver=" + apiServer:  {"additional properties 'apiserver' not allowed"},
		"preset=minikube":         {"at '/preset': value must be one of 'generic', 'kubeadm', 'kind'"},
		"image.digest=v1":         {"at '/image/digest': 'v1' does not match pattern"},
		"image.tags=v1":           {"at '/image': additional properties 'tags' not allowed"},
		"config.mode=iptables":    {"at '/config/mode': value must be one of '', 'nftables'"},
		"config.clusterCidr=::/0": {"at '/config': additional properties 'clusterCidr' not allowed"},
		"config.nftables.sync=1s": {"at '/config/nftables': additional properties 'sync' not allowed"},
		"config.detectLocalMode=CNI": {"at '/config/detectLocalMode': value must be one of '', 'ClusterCIDR', " +
			"'NodeCIDR'"},
		"resources.limit.memory=1Mi": {"at '/resources': additional properties 'limit' not allowed"},
		"tolerations[0].oprator=Any": {"at '/tolerations/0': additional properties 'oprator' not allowed"},
		"affinity.nodeAfinity.a=b":   {"at '/affinity': additional properties 'nodeAfinity' not allowed"},
		"updateStrategy.type=Never":  {"at '/updateStrategy/type': value must be one of 'RollingUpdate', 'OnDelete'"},
		"hostAliases[0].ips[0]=::1":  {"at '/hostAliases/0': additional properties 'ips' not allowed"},
		"extraArgs[0]=v=2":           {"at '/extraArgs/0': 'v=2' does not match pattern '^-'"},
		"extraEnv[0].nme=GOGC":       {"at '/extraEnv/0': additional properties 'nme' not allowed"},
		"podLabels.a=true":           {"at '/podLabels/a': got boolean, want string"},
		"serviceAccount.create=no":   {"at '/serviceAccount/create': got string, want boolean"},
		"metrics.podmonitor.a=b":     {"at '/metrics': additional properties 'podmonitor' not allowed"},

		minimum["generic"] + ",metrics.podMonitor.enabled=true": {"metrics.podMonitor needs metrics.expose"},
	} {
		_, errs, err := helmTemplate("--set=" + values)
		for _, part := range want {
			if err == nil || !strings.Contains(errs, part) {
				t.Errorf("%s: got %v, %q; want %q", values, err, errs, part)
			}
		}
	}
}

// TestConfigurationHash checks that the name of the ConfigMap changes with its
// content, and with nothing else: a rolling update then applies a changed
// configuration.
func TestConfigurationHash(t *testing.T) {
	reference := configMap(t, helm(t))
	name := regexp.MustCompile(`^nftproxy-[0-9a-f]{10}$`)
	if !ptr.Deref(reference.Immutable, false) || !name.MatchString(reference.Name) {
		t.Errorf("got ConfigMap %s, immutable %v", reference.Name, reference.Immutable)
	}
	for values, changed := range map[string]bool{
		"config.nftables.masqueradeAll=true":    true,
		"config.clusterCIDR=10.1.0.0/16":        true,
		"conntrack.initContainer.enabled=false": true,
		"metrics.expose=true":                   true,
		"image.tag=v9":                          false,
		"apiServer=https://10.0.0.2:6443":       false, // in the pods
	} {
		c := configMap(t, helm(t, "--set="+values))
		if got := c.Name != reference.Name; got != changed {
			t.Errorf("%s: got ConfigMap %s, before %s; want another name: %v", values, c.Name, reference.Name, changed)
		}
		if got := !maps.Equal(c.Data, reference.Data); got != changed {
			t.Errorf("%s: got other data: %v, want %v", values, got, changed)
		}
	}
	const keep = "helm.sh/resource-policy"
	onDelete := configMap(t, helm(t, "--set=updateStrategy.type=OnDelete,updateStrategy.rollingUpdate=null"))
	if onDelete.Annotations[keep] != "keep" || reference.Annotations[keep] != "" {
		t.Errorf("got annotations %v with OnDelete and %v with RollingUpdate", onDelete.Annotations,
			reference.Annotations)
	}
	if name := configMap(t, kustomize(t, "base")).Name; name == configMap(t, kustomizeUsed(t, "base")).Name {
		t.Errorf("with kustomize: got ConfigMap %s before and after a change", name)
	}
}

// TestChartValues checks the effect of optional values.
func TestChartValues(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	all := helm(t, "--set=metrics.expose=true,metrics.annotations=true,image.tag=v9,image.digest="+digest,
		"--set=extraArgs={-v=2},podAnnotations.a=b,podLabels.team=net,imagePullSecrets[0].name=s",
		"--set=extraEnv[0].name=GOMEMLIMIT,extraEnv[0].value=115MiB",
		"--set=config.mode=,config.oomScoreAdj=0,priorityClassName=high",
		"--set=hostAliases[0].ip=10.0.0.1,hostAliases[0].hostnames={api}",
		"--set=serviceAccount.name=proxy,serviceAccount.annotations.c=d,resources.limits.memory=128Mi",
		"--set=updateStrategy.rollingUpdate.maxUnavailable=2,resetStaleConnections=true,hashTableSize=65521")
	set := daemonSet(t, all, "nftproxy")
	pod, annotations := set.Spec.Template.Spec, set.Spec.Template.Annotations
	c := container(t, pod.Containers, "kube-proxy")
	account := get[*corev1.ServiceAccount](t, all, "ServiceAccount proxy")
	config := configMap(t, all).Data["config.conf"]
	for name, ok := range map[string]bool{
		"image":       c.Image == "ghcr.io/nftproxy/nftproxy@"+digest && pod.InitContainers[0].Image == c.Image,
		"flags":       c.Command[len(c.Command)-1] == "-v=2" && slices.Contains(pod.InitContainers[0].Command, "-v=2"),
		"environment": c.Env[2].Name == "GOMEMLIMIT" && c.Env[1].Value == apiServer,
		"resources":   c.Resources.Limits.Memory().String() == "128Mi" && c.Resources.Requests.Cpu().String() == "100m",
		"annotations": annotations["prometheus.io/port"] == "10249" && annotations["a"] == "b",
		"labels":      set.Spec.Template.Labels["team"] == "net",
		"secrets":     pod.ImagePullSecrets[0].Name == "s",
		"priority":    pod.PriorityClassName == "high",
		"hosts":       pod.HostAliases[0].Hostnames[0] == "api",
		"account":     pod.ServiceAccountName == "proxy" && account.Annotations["c"] == "d",
		"reset":       slices.Contains(c.Command, "--reset-stale-connections"),
		"raw sockets": slices.Contains(c.SecurityContext.Capabilities.Add, "NET_RAW"),
		"hash":        slices.Contains(c.Command, "--hash-table-size=65521"),
		"update":      set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue() == 2,
		"metrics": strings.Contains(config, "metricsBindAddress: 0.0.0.0:10249\n") &&
			slices.Contains(c.Command, "--local-status-pages"),
		"zero values": strings.Contains(config, "mode: \"\"\n") && strings.Contains(config, "oomScoreAdj: 0\n"),
	} {
		if !ok {
			t.Errorf("%s: got DaemonSet %+v, configuration\n%s", name, set.Spec, config)
		}
	}
	if all := helm(t, "--set=serviceAccount.create=false"); all["ServiceAccount nftproxy"] != nil {
		t.Error("got a service account, want none")
	}
}

// TestLabels checks that each object has the labels that Helm recommends, and
// that the pods have the labels of the selector.
func TestLabels(t *testing.T) {
	all := helm(t)
	delete(all, "Pod nftproxy-test")
	for name, object := range all {
		got := object.(interface{ GetLabels() map[string]string }).GetLabels()
		for label, want := range map[string]string{
			"app.kubernetes.io/name":       "nftproxy",
			"app.kubernetes.io/instance":   "nftproxy",
			"app.kubernetes.io/managed-by": "Helm",
			"app.kubernetes.io/version":    find(t, "Makefile", `(?m)^VERSION \?= (\S+)$`),
			"helm.sh/chart": "nftproxy-" +
				find(t, "deploy/helm/nftproxy/Chart.yaml", `(?m)^version: (\S+)$`),
		} {
			if got[label] != want {
				t.Errorf("%s: got %s=%s, want %s", name, label, got[label], want)
			}
		}
	}
	set := daemonSet(t, all, "nftproxy").Spec
	for label, value := range set.Selector.MatchLabels {
		if set.Template.Labels[label] != value {
			t.Errorf("got pod label %s=%s, want %s as in the selector", label, set.Template.Labels[label], value)
		}
	}
}

// TestHelmTest checks the pod of `helm test`: it asks the command nftproxy of
// the same image, with the privileges of the proxy, for the Service kubernetes.
func TestHelmTest(t *testing.T) {
	all := helm(t)
	set, pod := daemonSet(t, all, "nftproxy"), get[*corev1.Pod](t, all, "Pod nftproxy-test")
	c, proxy := pod.Spec.Containers[0], container(t, set.Spec.Template.Spec.Containers, "kube-proxy")
	if selector := labels.SelectorFromSet(set.Spec.Selector.MatchLabels); selector.Matches(labels.Set(pod.Labels)) {
		t.Errorf("got labels %v, which the DaemonSet selects: it would adopt the pod and delete it", pod.Labels)
	}
	if pod.Annotations["helm.sh/hook"] != "test" || pod.Spec.RestartPolicy != "Never" || !pod.Spec.HostNetwork {
		t.Errorf("got annotations %v, spec %+v", pod.Annotations, pod.Spec)
	}
	if c.Image != proxy.Image || c.Command[0] != "/usr/local/bin/nftproxy" {
		t.Errorf("got image %s, command %q", c.Image, c.Command)
	}
	if diff := cmp.Diff(proxy.SecurityContext.Capabilities, c.SecurityContext.Capabilities); diff != "" {
		t.Errorf("capabilities (-proxy +test):\n%s", diff)
	}
}

// TestMonitoringObjects checks that the chart contains the alerts and the
// dashboard of deploy/monitoring.
func TestMonitoringObjects(t *testing.T) {
	text := helmText(t, "--set="+minimum["generic"], "--set=metrics.expose=true,metrics.podMonitor.enabled=true",
		"--set=metrics.prometheusRule.enabled=true,metrics.prometheusRule.labels.release=prometheus",
		"--set=metrics.dashboard.enabled=true,metrics.dashboard.annotations.grafana_folder=Net")
	found := map[string]map[string]any{}
	for _, document := range strings.Split(text, "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if kind, ok := object["kind"].(string); ok && (kind != "ConfigMap" ||
			strings.Contains(document, "-dashboard\n")) {
			found[kind] = object
		}
	}
	if found["PodMonitor"] == nil || found["PrometheusRule"] == nil || found["ConfigMap"] == nil {
		t.Fatalf("got %q, want a PodMonitor, a PrometheusRule and a ConfigMap", slices.Sorted(maps.Keys(found)))
	}
	if diff := cmp.Diff(fields(t, "deploy/monitoring/alerts.yaml"), found["PrometheusRule"]["spec"]); diff != "" {
		t.Errorf("alerts (-deploy/monitoring +chart):\n%s", diff)
	}
	var dashboard any
	data := found["ConfigMap"]["data"].(map[string]any)["nftproxy.json"].(string)
	if err := json.Unmarshal([]byte(data), &dashboard); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fields(t, "deploy/monitoring/dashboard.json"), dashboard); diff != "" {
		t.Errorf("dashboard (-deploy/monitoring +chart):\n%s", diff)
	}
	m := found["PrometheusRule"]["metadata"].(map[string]any)
	if m["labels"].(map[string]any)["release"] != "prometheus" {
		t.Errorf("got metadata %v of the PrometheusRule", m)
	}
}

// fields decodes a YAML or JSON file of the repository.
func fields(t *testing.T, path string) (value any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, path))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// TestGeneratedFiles checks that the schema and the README of the chart are up
// to date, and that each value is documented.
func TestGeneratedFiles(t *testing.T) {
	schema, err := exec.Command("go", "run", "./schema").Output()
	if err != nil {
		t.Fatal(err)
	}
	readme, errs, err := tool("helm-docs", "--chart-search-root="+chart, "--sort-values-order=file", "--dry-run",
		"--log-level=warning")
	if err != nil || errs != "" {
		t.Fatalf("helm-docs: %v\n%s", err, errs)
	}
	for name, want := range map[string]string{"values.schema.json": string(schema), "README.md": readme} {
		got, err := os.ReadFile(filepath.Join(chart, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(string(got))); diff != "" {
			t.Errorf("%s is not up to date, run `make chart` (-want +got):\n%s", name, diff)
		}
	}
	if undocumented := regexp.MustCompile(`(?m)^\|.*\|  \|$`).FindAllString(readme, -1); undocumented != nil {
		t.Errorf("values without a description:\n%s", strings.Join(undocumented, "\n"))
	}
}

// TestPackage checks that `helm package` includes the files to which symbolic
// links refer, and that `helm lint` accepts the chart.
func TestPackage(t *testing.T) {
	dir := t.TempDir()
	if out, errs, err := tool("helm", "package", chart, "--destination="+dir); err != nil {
		t.Fatalf("%v\n%s%s", err, out, errs)
	}
	archives, err := filepath.Glob(dir + "/nftproxy-*.tgz")
	if err != nil || len(archives) != 1 {
		t.Fatalf("got archives %q, %v", archives, err)
	}
	listing, err := exec.Command("tar", "-tvzf", archives[0]).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"files/alerts.yaml", "files/dashboard.json", "README.md", "values.schema.json", "presets.yaml",
	} {
		if !regexp.MustCompile(`(?m)^-.* nftproxy/` + name + "$").Match(listing) {
			t.Errorf("got no file %s in the package:\n%s", name, listing)
		}
	}
	if out, errs, err := tool("helm", "lint", "--strict", chart, "--set="+minimum["generic"]); err != nil {
		t.Errorf("helm lint: %v\n%s%s", err, out, errs)
	}
}
