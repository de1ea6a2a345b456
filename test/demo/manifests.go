package main

import (
	"embed"
	"io/fs"
)

//go:embed manifests/*.yaml
var embedded embed.FS

// manifests returns the folder of sample manifests.
func manifests() (fs.FS, error) { return fs.Sub(embedded, "manifests") }
