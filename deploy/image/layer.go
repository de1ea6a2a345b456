package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"testing/fstest"
	"time"
)

// rootFiles returns all files of the image.
//
// The image has no nsswitch.conf: without it, Go's resolver uses /etc/hosts
// and then DNS. It has no CA certificates: the service account contains that
// of the API server.
func rootFiles(binary, licence, thirdParty []byte) fstest.MapFS {
	passwd := "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"
	return fstest.MapFS{
		"etc":                      {Mode: fs.ModeDir | 0o755},
		"etc/group":                {Mode: 0o644, Data: []byte("root:x:0:\nnogroup:x:65534:\n")},
		"etc/passwd":               {Mode: 0o644, Data: []byte(passwd)},
		"licenses":                 {Mode: fs.ModeDir | 0o755},
		"licenses/LICENSE":         {Mode: 0o644, Data: licence},
		"licenses/THIRD-PARTY":     {Mode: 0o644, Data: thirdParty},
		"tmp":                      {Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		"usr":                      {Mode: fs.ModeDir | 0o755},
		"usr/local":                {Mode: fs.ModeDir | 0o755},
		"usr/local/bin":            {Mode: fs.ModeDir | 0o755},
		"usr/local/bin/kube-proxy": {Mode: 0o755, Data: binary},
		"usr/local/bin/nftproxy":   {Mode: fs.ModeSymlink | 0o777, Data: []byte("kube-proxy")},
	}
}

// tarOf returns the files as a tar stream, directories before their entries.
// All files belong to root and have the same modification time.
func tarOf(files fstest.MapFS, modified time.Time) ([]byte, error) {
	for _, f := range files {
		f.ModTime = modified
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := errors.Join(w.AddFS(files), w.Close())
	return out.Bytes(), err
}
