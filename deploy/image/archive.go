package main

import (
	"encoding/json"
	"io"
	"strings"
)

// dockerImage is an entry of a Docker archive's manifest.json.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// writeArchive writes a tar file that is an OCI image layout of all images
// and a Docker archive of the first image.
func writeArchive(w io.Writer, d description, images []image) error {
	top, blobs, err := indexOf(images)
	if err != nil {
		return err
	}
	top.Annotations = map[string]string{
		"io.containerd.image.name":          d.name, // the name that `ctr images import` assigns
		"org.opencontainers.image.ref.name": d.name[strings.LastIndex(d.name, ":")+1:],
	}
	layout, err := json.Marshal(map[string]string{"imageLayoutVersion": "1.0.0"})
	if err != nil {
		return err
	}
	layoutIndex, err := json.Marshal(index{2, typeIndex, []descriptor{top}})
	if err != nil {
		return err
	}
	docker, err := json.Marshal([]dockerImage{{
		Config: images[0].config.path(), RepoTags: []string{d.name}, Layers: []string{images[0].layer.path()},
	}})
	if err != nil {
		return err
	}
	files := []file{{"oci-layout", 0o644, layout}, {"index.json", 0o644, layoutIndex}, {"manifest.json", 0o644, docker},
		{"blobs/", 0o755, nil}, {"blobs/sha256/", 0o755, nil}}
	for _, b := range blobs {
		files = append(files, file{b.path(), 0o644, b.data})
	}
	data, err := tarOf(files, d.created)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// indexOf returns the descriptor of the only image, or of an index of all
// images, and all blobs.
func indexOf(images []image) (top descriptor, blobs []blob, err error) {
	all := index{SchemaVersion: 2, MediaType: typeIndex}
	for _, img := range images {
		blobs = append(blobs, img.manifest, img.config, img.layer)
		all.Manifests = append(all.Manifests, img.descriptor())
	}
	if len(images) == 1 {
		return all.Manifests[0], blobs, nil
	}
	b, err := encode(typeIndex, all)
	return b.descriptor(), append(blobs, b), err
}
