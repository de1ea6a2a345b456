package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
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
		return errors.New("no binary: want ARCHITECTURE=FILE")
	}
	text, err := os.ReadFile(*licence)
	if err != nil {
		return fmt.Errorf("read licence: %w", err)
	}
	d := description{name: *name, version: *version, revision: *revision, created: time.Unix(*created, 0).UTC()}
	var images []image
	for _, arg := range flags.Args() {
		arch, path, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q: want ARCHITECTURE=FILE", arg)
		}
		binary, err := readBinary(path, arch)
		if err != nil {
			return err
		}
		img, err := newImage(d, arch, rootFiles(binary, text))
		if err != nil {
			return fmt.Errorf("image for %s: %w", arch, err)
		}
		fmt.Fprintf(stdout, "linux/%s: binary %s, image %s compressed, %s unpacked\n",
			arch, megabytes(len(binary)), megabytes(len(img.layer.data)), megabytes(img.unpacked))
		images = append(images, img)
	}
	var archive bytes.Buffer
	if err := writeArchive(&archive, d, images); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	if err := os.WriteFile(*output, archive.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: %s, %s\n", *output, *name, megabytes(archive.Len()))
	return nil
}

func megabytes(n int) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
