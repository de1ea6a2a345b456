package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing/fstest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// description is the metadata of an image.
type description struct {
	name, version, revision string
	created                 time.Time
}

// labels returns labels with the predefined annotation keys of the OCI image
// specification.
func (d description) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "nftproxy",
		"org.opencontainers.image.description": "A Kubernetes service proxy for nftables that replaces kube-proxy",
		"org.opencontainers.image.source":      "https://github.com/nftproxy/nftproxy",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     d.version,
		"org.opencontainers.image.revision":    d.revision,
	}
}

// newImage returns the image of an architecture, with one layer.
func newImage(d description, arch string, root fstest.MapFS) (v1.Image, error) {
	unpacked, err := tarOf(root, d.created)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(unpacked)), nil }
	layer, err := tarball.LayerFromOpener(open,
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: d.created}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		Architecture: arch, OS: "linux", Created: created,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Entrypoint: []string{"/usr/local/bin/kube-proxy"},
			WorkingDir: "/",
			Labels:     d.labels(),
		},
	})
	if err != nil {
		return nil, err
	}
	img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Append(img, mutate.Addendum{
		Layer: layer, History: v1.History{Created: created, CreatedBy: "nftproxy deploy/image"},
	})
}

// newIndex returns an index of the images of all architectures. Its
// annotations are shown by registries.
func newIndex(d description, images []v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, img := range images {
		config, err := img.ConfigFile()
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: config.Platform()},
		})
	}
	return mutate.Annotations(index, d.labels()).(v1.ImageIndex), nil
}
