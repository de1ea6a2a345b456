package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(os.Stderr, "sbom: %v\n", err)
		}
		os.Exit(1)
	}
}

// run writes the files that args name.
func run(args []string) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	pkg := flags.String("package", "./cmd/kube-proxy", "main `PACKAGE` of the program")
	platform := flags.String("platform", "", "`OS/ARCHITECTURE` of the program (default from the environment)")
	repository := flags.String("repository", "..", "`FOLDER` of the program's module")
	version := flags.String("version", "", "version of the program")
	created := flags.Int64("created", 0, "time of the bill of materials, in `SECONDS` since 1970")
	output := flags.String("output", "", "`FILE` of the bill of materials")
	licences := flags.String("licences", "", "`FILE` of the licence texts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	modules, err := modulesOf(*repository, *pkg, *platform)
	if err != nil {
		return err
	}
	if err := classify(modules); err != nil {
		return err
	}
	texts, err := licenceTexts(modules)
	if err != nil {
		return err
	}
	bom, err := newBOM(modules, *version, time.Unix(*created, 0).UTC())
	if err != nil {
		return err
	}
	for path, content := range map[string][]byte{*licences: texts, *output: bom} {
		if path == "" {
			continue
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
