package release

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/nftproxy/nftproxy/test/must"
)

// imageIndex returns the index of the image.
func imageIndex(t *testing.T) v1.ImageIndex {
	t.Helper()
	top, err := layout.ImageIndexFromPath(unpack(t, file(t, "nftproxy-image-VERSION.tar")))
	must.NoError(t, err)
	manifest, err := top.IndexManifest()
	must.NoError(t, err)
	if got := manifest.Manifests[0].Annotations["io.containerd.image.name"]; len(manifest.Manifests) != 1 ||
		got != "ghcr.io/nftproxy/nftproxy:"+environment(t, "VERSION") {
		t.Errorf("got layout %+v", manifest)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	must.NoError(t, err)
	return index
}

// TestImage checks that the image of each architecture has the program of the
// archive.
func TestImage(t *testing.T) {
	index := imageIndex(t)
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	must.NoError(t, err)
	if len(manifest.Manifests) != len(architectures) {
		t.Fatalf("got index %+v", manifest)
	}
	for i, arch := range architectures {
		if got := manifest.Manifests[i].Platform.String(); got != "linux/"+arch {
			t.Errorf("got platform %s, want linux/%s", got, arch)
		}
		img, err := index.Image(manifest.Manifests[i].Digest)
		must.NoError(t, err)
		config, err := img.ConfigFile()
		must.NoError(t, err)
		labels := config.Config.Labels
		if labels["org.opencontainers.image.version"] != environment(t, "VERSION") ||
			labels["org.opencontainers.image.revision"] != strings.TrimSpace(run(t, "git", "rev-parse", "HEAD")) {
			t.Errorf("%s: got labels %v", arch, labels)
		}
		root := extract(t, img)
		for path, other := range map[string]string{
			"usr/local/bin/nftproxy": "kube-proxy", "licenses/THIRD-PARTY": "THIRD-PARTY",
			"licenses/LICENSE": "LICENSE",
		} {
			expectEqual(t, filepath.Join(root, path), filepath.Join(programs(t, arch), other))
		}
	}
}

// extract returns a folder with the files of an image.
func extract(t *testing.T, img v1.Image) string {
	t.Helper()
	root := t.TempDir()
	files := mutate.Extract(img)
	defer files.Close()
	unpacking := exec.Command("tar", "-x", "-C", root)
	unpacking.Stdin = files
	if out, err := unpacking.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	return root
}

// expectEqual compares two files.
func expectEqual(t *testing.T, a, b string) {
	t.Helper()
	if !bytes.Equal(read(t, a), read(t, b)) {
		t.Errorf("%s and %s differ", a, b)
	}
}

// TestPublish publishes the image and the chart in a registry of this process,
// and renders the chart from there.
func TestPublish(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	namespace := strings.TrimPrefix(server.URL, "http://") + "/nftproxy"
	version := environment(t, "VERSION")
	script := filepath.Join(repository, "deploy/release/publish")
	publish := exec.Command(script, version, environment(t, "RELEASE"), namespace)
	publish.Env = append(os.Environ(), "HELM_FLAGS=--plain-http")
	var logs bytes.Buffer
	publish.Stderr = &logs
	out, err := publish.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &logs)
	}
	digest, err := imageIndex(t).Digest()
	must.NoError(t, err)
	lines := strings.Fields(string(out))
	if len(lines) != 2 || lines[0] != namespace+"/nftproxy@"+digest.String() ||
		!strings.HasPrefix(lines[1], namespace+"/charts/nftproxy@sha256:") {
		t.Fatalf("got output\n%s", out)
	}
	tag, err := name.ParseReference(namespace + "/nftproxy:" + version)
	must.NoError(t, err)
	pulled, err := remote.Index(tag)
	must.NoError(t, err)
	if err := validate.Index(pulled); err != nil {
		t.Error(err)
	}
	got := render(t, "oci://"+namespace+"/charts/nftproxy", "--version="+version[1:], "--plain-http")
	want := render(t, filepath.Join(repository, "deploy/helm/nftproxy"))
	want = strings.ReplaceAll(want, "nftproxy/nftproxy:"+version+"\n", "nftproxy/nftproxy@"+digest.String()+"\n")
	if got != want || strings.Count(want, "image: ghcr.io/nftproxy/nftproxy@"+digest.String()+"\n") != 3 {
		t.Errorf("got manifests\n%s\nwant\n%s", got, want)
	}
	for values, want := range map[string]string{
		"image.tag=v9": "ghcr.io/nftproxy/nftproxy:v9", "image.repository=r.example/proxy": "r.example/proxy:" +
			version,
	} {
		got := render(t, "oci://"+namespace+"/charts/nftproxy", "--version="+version[1:], "--plain-http",
			"--set="+values)
		if !strings.Contains(got, "image: "+want+"\n") {
			t.Errorf("%s: got manifests\n%s\nwant image %s", values, got, want)
		}
	}
}

// render renders a chart. The output of Helm begins with the digest of a chart
// that it pulled.
func render(t *testing.T, chart ...string) string {
	t.Helper()
	args := []string{"tool", "helm", "template", "nftproxy", "--namespace=kube-system", "--kube-version=v1.37.2",
		"--set=apiServer=https://10.0.0.1:6443,config.clusterCIDR=10.244.0.0/16"}
	_, manifests, _ := strings.Cut(run(t, "go", append(args, chart...)...), "\n---\n")
	return manifests
}
