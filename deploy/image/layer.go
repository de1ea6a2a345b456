package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"time"
)

// file is an entry of the layer. A path that ends with a slash is a
// directory.
type file struct {
	path    string
	mode    int64
	content []byte
}

// symlink is the mode of a symbolic link (S_IFLNK). Its content is its target.
const symlink = 0o120777

// rootFiles returns all files of the image, directories before their entries.
//
// The image has no nsswitch.conf: without it, Go's resolver uses /etc/hosts
// and then DNS. It has no CA certificates: the service account contains that
// of the API server.
func rootFiles(binary, licence, thirdParty []byte) []file {
	return []file{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n")},
		{"licenses/", 0o755, nil},
		{"licenses/LICENSE", 0o644, licence},
		{"licenses/THIRD-PARTY", 0o644, thirdParty},
		{"tmp/", 0o1777, nil},
		{"usr/", 0o755, nil},
		{"usr/local/", 0o755, nil},
		{"usr/local/bin/", 0o755, nil},
		{"usr/local/bin/kube-proxy", 0o755, binary},
		{"usr/local/bin/nftproxy", symlink, []byte("kube-proxy")},
	}
}

// tarOf returns the files as a tar stream. All files belong to root and have
// the same modification time.
func tarOf(files []file, modified time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.path, Mode: f.mode, Size: int64(len(f.content)),
			ModTime: modified, Format: tar.FormatPAX,
		}
		content := f.content
		switch {
		case f.mode == symlink:
			h.Typeflag, h.Mode, h.Size, h.Linkname = tar.TypeSymlink, 0o777, 0, string(content)
			content = nil
		case f.path[len(f.path)-1] == '/':
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
		if _, err := w.Write(content); err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
