package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nftproxy/nftproxy/test/must"
)

const (
	repository  = "../.."
	chart       = repository + "/deploy/helm/nftproxy"
	apiServer   = "https://10.0.0.1:6443"
	clusterCIDR = "10.244.0.0/16"
)

// objects are rendered objects by "Kind name".
type objects map[string]runtime.Object

func (all objects) names() []string { return slices.Sorted(maps.Keys(all)) }

// program returns the path of a tool of this module.
var program = sync.OnceValues(func() (map[string]string, error) {
	paths := map[string]string{}
	for _, name := range []string{"helm", "helm-docs", "kustomize"} {
		out, err := exec.Command("go", "tool", "-n", name).Output() // it builds the tool
		if err != nil {
			return nil, fmt.Errorf("go tool %s: %w", name, err)
		}
		paths[name] = strings.TrimSpace(string(out))
	}
	return paths, nil
})

// tool runs a tool of this module.
func tool(name string, args ...string) (stdout, stderr string, err error) {
	paths, err := program()
	if err != nil {
		return "", "", err
	}
	cmd := exec.Command(paths[name], args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// kustomize renders a kustomization of deploy/kustomize.
func kustomize(t *testing.T, name string) objects {
	t.Helper()
	return kustomizeDir(t, filepath.Join(repository, "deploy/kustomize", name))
}

func kustomizeDir(t *testing.T, dir string) objects {
	t.Helper()
	out, errs, err := tool("kustomize", "build", dir)
	if err != nil {
		t.Fatalf("kustomize build %s: %v\n%s", dir, err, errs)
	}
	return decode(t, out)
}

// kustomizeUsed renders a kustomization as deploy/README.md describes its use:
// with the address of the API server and a clusterCIDR.
func kustomizeUsed(t *testing.T, name string) objects {
	t.Helper()
	base, err := filepath.Abs(filepath.Join(repository, "deploy/kustomize", name))
	must.NoError(t, err)
	config, err := os.ReadFile(filepath.Join(base, "config.conf"))
	must.NoError(t, err)
	dir := t.TempDir()
	if base, err = filepath.Rel(dir, base); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"config.conf": strings.Replace(string(config), `clusterCIDR: ""`, "clusterCIDR: "+clusterCIDR, 1),
		"kustomization.yaml": fmt.Sprintf(`
resources: [%s]
configMapGenerator:
- name: nftproxy
  namespace: kube-system
  behavior: merge
  options: {immutable: true}
  literals: [apiServer=%s]
  files: [config.conf]
`, base, apiServer),
	}
	for name, text := range files {
		must.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return kustomizeDir(t, dir)
}

// helmTemplate is the command that renders the chart.
var helmTemplate = []string{"helm", "template", "nftproxy", chart, "--namespace=kube-system", "--kube-version=v1.37.2"}

func helmText(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, err := tool(helmTemplate[0], append(helmTemplate[1:], args...)...)
	if err != nil {
		t.Fatalf("helm template %q: %v\n%s", args, err, errs)
	}
	return out
}

// decode decodes manifests as API types. Unknown and duplicate fields are
// errors.
func decode(t testing.TB, manifests string) objects {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	all := objects{}
	documents := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifests)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		must.NoError(t, err)
		if strings.TrimSpace(string(document)) == "" {
			continue
		}
		object, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		m, err := meta.Accessor(object)
		must.NoError(t, err)
		key := kind.Kind + " " + m.GetName()
		if all[key] != nil {
			t.Fatalf("%s is rendered twice", key)
		}
		all[key] = object
	}
}

// get returns an object by its key.
func get[T runtime.Object](t *testing.T, all objects, key string) T {
	t.Helper()
	object, ok := all[key].(T)
	if !ok {
		t.Fatalf("%s is not rendered", key)
	}
	return object
}

// configMap returns the ConfigMap that the DaemonSet mounts. Its name ends with
// a hash.
func configMap(t *testing.T, all objects) *corev1.ConfigMap {
	t.Helper()
	volume := daemonSet(t, all, "nftproxy").Spec.Template.Spec.Volumes[0]
	return get[*corev1.ConfigMap](t, all, "ConfigMap "+volume.ConfigMap.Name)
}

func daemonSet(t *testing.T, all objects, name string) *appsv1.DaemonSet {
	t.Helper()
	return get[*appsv1.DaemonSet](t, all, "DaemonSet "+name)
}
