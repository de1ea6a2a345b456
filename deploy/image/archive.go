package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"strings"
	"testing/fstest"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// archiveOf returns a tar file that is an OCI image layout of all images and a
// Docker archive of the first image.
func archiveOf(d description, images []v1.Image) ([]byte, error) {
	dir, err := os.MkdirTemp("", "nftproxy-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	index, err := newIndex(d, images)
	if err != nil {
		return nil, err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          d.name, // the name that `ctr images import` assigns
		"org.opencontainers.image.ref.name": d.name[strings.LastIndex(d.name, ":")+1:],
	})); err != nil {
		return nil, err
	}
	manifest, err := dockerManifest(d.name, images[0])
	if err != nil {
		return nil, err
	}
	files, err := filesOf(dir)
	if err != nil {
		return nil, err
	}
	files["manifest.json"] = &fstest.MapFile{Mode: 0o644, Data: manifest}
	return tarOf(files, d.created)
}

// dockerManifest returns the manifest.json of a Docker archive, which refers
// to the blobs of the image layout.
func dockerManifest(name string, img v1.Image) ([]byte, error) {
	manifest, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	blob := func(d v1.Descriptor) string { return "blobs/sha256/" + d.Digest.Hex }
	return json.Marshal(tarball.Manifest{{
		Config: blob(manifest.Config), RepoTags: []string{name}, Layers: []string{blob(manifest.Layers[0])},
	}})
}

// filesOf returns the files in a folder.
func filesOf(dir string) (fstest.MapFS, error) {
	files, root := fstest.MapFS{}, os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			files[path] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
			return err
		}
		content, err := fs.ReadFile(root, path)
		files[path] = &fstest.MapFile{Mode: 0o644, Data: content}
		return err
	})
	return files, err
}
