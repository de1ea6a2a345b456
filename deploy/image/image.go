package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Media types of the OCI image specification, v1.1.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
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

// blob is a content-addressed part of an image.
type blob struct {
	mediaType string
	data      []byte
}

func (b blob) hex() string {
	sum := sha256.Sum256(b.data)
	return hex.EncodeToString(sum[:])
}

func (b blob) path() string { return "blobs/sha256/" + b.hex() }

func (b blob) descriptor() descriptor {
	return descriptor{MediaType: b.mediaType, Digest: "sha256:" + b.hex(), Size: len(b.data)}
}

// descriptor, manifest, index and config are types of the OCI image
// specification, with the fields used here.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platform         `json:"platform,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type config struct {
	Created      time.Time  `json:"created"`
	Architecture string     `json:"architecture"`
	OS           string     `json:"os"`
	Config       execution  `json:"config"`
	RootFS       rootFS     `json:"rootfs"`
	History      []creation `json:"history"`
}

type execution struct {
	Env        []string          `json:"Env"`
	Entrypoint []string          `json:"Entrypoint"`
	WorkingDir string            `json:"WorkingDir"`
	Labels     map[string]string `json:"Labels"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type creation struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

// image is the image for one architecture.
type image struct {
	platform                platform
	config, layer, manifest blob
	unpacked                int // bytes of the layer before compression
}

func newImage(d description, arch string, files []file) (image, error) {
	unpacked, err := tarOf(files, d.created)
	if err != nil {
		return image{}, err
	}
	packed, err := compress(unpacked)
	if err != nil {
		return image{}, err
	}
	img := image{platform: platform{arch, "linux"}, layer: blob{typeLayer, packed}, unpacked: len(unpacked)}
	img.config, err = encode(typeConfig, config{
		Created: d.created, Architecture: arch, OS: "linux",
		Config: execution{
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Entrypoint: []string{"/usr/local/bin/kube-proxy"},
			WorkingDir: "/",
			Labels:     d.labels(),
		},
		RootFS:  rootFS{"layers", []string{"sha256:" + blob{data: unpacked}.hex()}},
		History: []creation{{d.created, "nftproxy deploy/image"}},
	})
	if err != nil {
		return image{}, err
	}
	layers := []descriptor{img.layer.descriptor()}
	img.manifest, err = encode(typeManifest, manifest{2, typeManifest, img.config.descriptor(), layers})
	return img, err
}

func (i image) descriptor() descriptor {
	d := i.manifest.descriptor()
	d.Platform = &i.platform
	return d
}

func encode(mediaType string, v any) (blob, error) {
	data, err := json.Marshal(v)
	return blob{mediaType, data}, err
}
