package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(os.Stderr, "image: %v\n", err)
		}
		os.Exit(1)
	}
}

// run builds and writes the image that args describe, and prints its size.
func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	name := flags.String("name", "", "`NAME:TAG` of the image")
	version := flags.String("version", "", "version of the binaries, a label of the image")
	revision := flags.String("revision", "", "commit of the source, a label of the image")
	created := flags.Int64("created", 0, "time of the image and of all files, in `SECONDS` since 1970")
	licence := flags.String("licence", "LICENSE", "licence `FILE` to include")
	output := flags.String("output", "image.tar", "`FILE` to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !strings.Contains(*name, ":") {
		return fmt.Errorf("--name %q: want NAME:TAG", *name)
	}
	if flags.NArg() == 0 {
		return errors.New("no binary: want ARCHITECTURE=FOLDER")
	}
	d := description{name: *name, version: *version, revision: *revision, created: time.Unix(*created, 0).UTC()}
	images, err := newImages(d, flags.Args(), *licence)
	if err != nil {
		return err
	}
	archive, err := archiveOf(d, images)
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	if err := os.WriteFile(*output, archive, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: %s, %.1f MB\n", *output, *name, float64(len(archive))/1e6)
	return nil
}

// newImages returns an image for each of args, ARCHITECTURE=FOLDER.
func newImages(d description, args []string, licence string) ([]v1.Image, error) {
	var images []v1.Image
	for _, arg := range args {
		arch, folder, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("%q: want ARCHITECTURE=FOLDER", arg)
		}
		binary, err := readBinary(filepath.Join(folder, "kube-proxy"), arch)
		if err != nil {
			return nil, err
		}
		own, err := os.ReadFile(licence)
		if err != nil {
			return nil, err
		}
		thirdParty, err := os.ReadFile(filepath.Join(folder, "THIRD-PARTY"))
		if err != nil {
			return nil, err
		}
		img, err := newImage(d, arch, rootFiles(binary, own, thirdParty))
		if err != nil {
			return nil, fmt.Errorf("image for %s: %w", arch, err)
		}
		images = append(images, img)
	}
	return images, nil
}
