package main

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// writeArchive writes a tar file that is an OCI image layout of all images
// and a Docker archive of the first image.
func writeArchive(w io.Writer, d description, images []v1.Image) error {
	dir, err := os.MkdirTemp("", "nftproxy-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	index, err := newIndex(d, images)
	if err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          d.name, // the name that `ctr images import` assigns
		"org.opencontainers.image.ref.name": d.name[strings.LastIndex(d.name, ":")+1:],
	})); err != nil {
		return err
	}
	if err := writeDockerManifest(filepath.Join(dir, "manifest.json"), d.name, images[0]); err != nil {
		return err
	}
	files, err := filesOf(dir)
	if err != nil {
		return err
	}
	data, err := tarOf(files, d.created)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// writeDockerManifest writes the manifest.json of a Docker archive, which
// refers to the blobs of the image layout.
func writeDockerManifest(path, name string, img v1.Image) error {
	manifest, err := img.Manifest()
	if err != nil {
		return err
	}
	blob := func(d v1.Descriptor) string { return "blobs/sha256/" + d.Digest.Hex }
	data, err := json.Marshal(tarball.Manifest{{
		Config: blob(manifest.Config), RepoTags: []string{name}, Layers: []string{blob(manifest.Layers[0])},
	}})
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// filesOf returns the files in a folder, in lexical order.
func filesOf(dir string) (files []file, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			files = append(files, file{name + "/", 0o755, nil})
			return nil
		}
		content, err := os.ReadFile(path)
		files = append(files, file{name, 0o644, content})
		return err
	})
	return files, err
}
