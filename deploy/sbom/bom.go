package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// newBOM returns a bill of materials, JSON. The first module is the one of the
// program.
func newBOM(modules []*module, version string, created time.Time) ([]byte, error) {
	modules[0].version = version
	bom := cyclonedx.NewBOM()
	var components []cyclonedx.Component
	var references []string
	for _, m := range modules {
		c, err := component(m)
		if err != nil {
			return nil, err
		}
		components = append(components, c)
		references = append(references, c.BOMRef)
	}
	components[0].Type = cyclonedx.ComponentTypeApplication
	bom.Metadata = &cyclonedx.Metadata{Timestamp: created.Format(time.RFC3339), Component: &components[0]}
	others := components[1:]
	bom.Components = &others
	dependencies := references[1:]
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: references[0], Dependencies: &dependencies}}
	var out bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true)
	err := encoder.EncodeVersion(bom, cyclonedx.SpecVersion1_6)
	return out.Bytes(), err
}

// component describes a module.
func component(m *module) (cyclonedx.Component, error) {
	url := fmt.Sprintf("pkg:golang/%s@%s", m.path, m.version)
	c := cyclonedx.Component{
		BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: m.path, Version: m.version,
		Scope: cyclonedx.ScopeRequired, PackageURL: url,
	}
	var licences cyclonedx.Licenses
	for _, id := range m.licences {
		licences = append(licences, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
	}
	c.Licenses = &licences
	if m.sum == "" {
		return c, nil
	}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.sum, "h1:"))
	if err != nil {
		return c, fmt.Errorf("module %s: checksum %s: %w", m.path, m.sum, err)
	}
	c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	return c, nil
}
