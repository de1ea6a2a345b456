package deploy

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/nftproxy/nftproxy/test/must"
)

const imageName = "registry.example:5000/nftproxy:v1.2.3"

// smallProgram builds a small static binary, and returns a folder with it and
// the licence texts.
func smallProgram(t *testing.T, arch string) string {
	t.Helper()
	source, folder := filepath.Join(t.TempDir(), "main.go"), t.TempDir()
	const text = "package main\n\nfunc main() { println(\"it runs\") }\n"
	err := errors.Join(os.WriteFile(source, []byte(text), 0o644),
		os.WriteFile(filepath.Join(folder, "THIRD-PARTY"), []byte("licences of modules"), 0o644))
	must.NoError(t, err)
	cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(folder, "kube-proxy"), source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return folder
}

// TestImage checks that the archive is a valid Docker archive and OCI layout,
// that a second build produces the same bytes, and that the binary runs in
// the image.
func TestImage(t *testing.T) {
	t.Parallel()
	run, folder := builder(t), smallProgram(t, runtime.GOARCH)
	build := func() (archive string, content []byte) {
		archive = filepath.Join(t.TempDir(), "image.tar")
		out, err := run("", "--name", imageName, "--version", "v1.2.3", "--output", archive, runtime.GOARCH+"="+folder)
		if err != nil || !strings.Contains(out, "image.tar: "+imageName+", ") {
			t.Fatalf("got %v, want the name and size: %s", err, out)
		}
		if content, err = os.ReadFile(archive); err != nil {
			t.Fatal(err)
		}
		return archive, content
	}
	archive, first := build()
	docker, err := tarball.ImageFromPath(archive, nil)
	must.NoError(t, err)
	if err := validate.Image(docker); err != nil {
		t.Errorf("Docker archive: %v", err)
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(archive) })
	if err != nil || manifest[0].RepoTags[0] != imageName {
		t.Errorf("Docker archive: %v, %+v", err, manifest)
	}
	index := ociIndex(t, archive)
	if name := index.Manifests[0].Annotations["io.containerd.image.name"]; name != imageName {
		t.Errorf("got containerd name %q, want %q", name, imageName)
	}
	config, err := docker.ConfigFile()
	must.NoError(t, err)
	if config.Architecture != runtime.GOARCH || config.Created.Unix() != 1700000000 ||
		config.Config.Entrypoint[0] != "/usr/local/bin/kube-proxy" {
		t.Errorf("got configuration %+v", config)
	}
	checkRoot(t, docker)
	_, second := build()
	if !bytes.Equal(first, second) {
		t.Error("got different bytes from a second build")
	}
}

// ociIndex unpacks the archive, validates it as an OCI layout and returns its
// index.
func ociIndex(t *testing.T, archive string) *v1.IndexManifest {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	index, err := layout.ImageIndexFromPath(dir)
	must.NoError(t, err)
	if err := validate.Index(index); err != nil {
		t.Errorf("OCI layout: %v", err)
	}
	manifest, err := index.IndexManifest()
	must.NoError(t, err)
	return manifest
}

// checkRoot checks the files of the image and runs the binary.
func checkRoot(t *testing.T, img v1.Image) {
	t.Helper()
	root, modes := t.TempDir(), map[string]string{}
	files := mutate.Extract(img)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.NoError(t, err)
		modes[h.Name] = strings.TrimSuffix(h.FileInfo().Mode().String()+" "+h.Linkname, " ")
		if h.Name == "usr/local/bin/kube-proxy" {
			data, err := io.ReadAll(r)
			must.NoError(t, err)
			must.NoError(t, os.WriteFile(filepath.Join(root, "kube-proxy"), data, h.FileInfo().Mode()))
		}
	}
	want := map[string]string{
		"etc": "drwxr-xr-x", "etc/group": "-rw-r--r--", "etc/passwd": "-rw-r--r--", "licenses": "drwxr-xr-x",
		"licenses/LICENSE": "-rw-r--r--", "licenses/THIRD-PARTY": "-rw-r--r--", "tmp": "dtrwxrwxrwx",
		"usr": "drwxr-xr-x", "usr/local": "drwxr-xr-x",
		"usr/local/bin": "drwxr-xr-x", "usr/local/bin/kube-proxy": "-rwxr-xr-x",
		"usr/local/bin/nftproxy": "Lrwxrwxrwx kube-proxy",
	}
	if diff := cmp.Diff(want, modes); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	out, err := exec.Command("chroot", root, "/kube-proxy").CombinedOutput()
	if err != nil || string(out) != "it runs\n" {
		t.Errorf("run the binary in the image: got %v, %q", err, out)
	}
}

// TestImageOfSeveralArchitectures checks that the name refers to an index,
// and that Docker loads the first image.
func TestImageOfSeveralArchitectures(t *testing.T) {
	t.Parallel()
	build, archive := builder(t), filepath.Join(t.TempDir(), "image.tar")
	out, err := build("", "--name", imageName, "--output", archive,
		"arm64="+smallProgram(t, "arm64"), "amd64="+smallProgram(t, "amd64"))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	top := ociIndex(t, archive).Manifests
	if len(top) != 1 || !top[0].MediaType.IsIndex() {
		t.Errorf("got layout %+v, want one index", top)
	}
	docker, err := tarball.ImageFromPath(archive, nil)
	must.NoError(t, err)
	if config, err := docker.ConfigFile(); err != nil || config.Architecture != "arm64" {
		t.Errorf("got Docker image %+v, %v; want arm64", config, err)
	}
}
