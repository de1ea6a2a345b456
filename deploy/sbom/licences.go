package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/google/licensecheck"
)

// allowedLicences returns the SPDX identifiers of the licences that a program
// under Apache-2.0 may contain.
func allowedLicences() []string {
	return []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}
}

// Names of files with a licence, and of further files that must be distributed
// with it.
var (
	licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying)\b`)
	noticeName  = regexp.MustCompile(`(?i)^(notice|patents)\b`)
)

// addLicenceFiles adds the files in the folder of a package and in the folders
// above it, up to the directory of the module: parts of a module can have a
// licence of their own.
func (m *module) addLicenceFiles(folder string) error {
	for {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return err
		}
		for _, e := range entries {
			path := filepath.Join(folder, e.Name())
			wanted := e.Type().IsRegular() && (licenceName.MatchString(e.Name()) || noticeName.MatchString(e.Name()))
			if i, found := slices.BinarySearch(m.licenceFiles, path); wanted && !found && filepath.Ext(path) != ".go" {
				m.licenceFiles = slices.Insert(m.licenceFiles, i, path)
			}
		}
		if folder == m.folder || folder == filepath.Dir(folder) {
			return nil
		}
		folder = filepath.Dir(folder)
	}
}

// classify finds the licences of modules. Every module must have one, and all
// must be known and allowed.
func classify(modules []*module) error {
	for _, m := range modules {
		for _, path := range m.licenceFiles {
			if !licenceName.MatchString(filepath.Base(path)) {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			ids, err := identify(text)
			if err != nil {
				return fmt.Errorf("module %s: %s: %w", m.path, path, err)
			}
			m.licences = append(m.licences, ids...)
		}
		slices.Sort(m.licences)
		m.licences = slices.Compact(m.licences)
		if len(m.licences) == 0 {
			return fmt.Errorf("module %s has no licence", m.path)
		}
	}
	return nil
}

// identify returns the SPDX identifiers of the licences in a text.
func identify(text []byte) ([]string, error) {
	const enough = 75 // percent of the words; the rest are names and headings
	found := licensecheck.Scan(text)
	var ids []string
	for _, match := range found.Match {
		if !slices.Contains(allowedLicences(), match.ID) {
			return nil, fmt.Errorf("licence %s is not allowed", match.ID)
		}
		ids = append(ids, match.ID)
	}
	if found.Percent < enough {
		return nil, fmt.Errorf("the licence is unknown: %.0f%% of the text is %v", found.Percent, ids)
	}
	return ids, nil
}

// licenceTexts returns the texts of all modules but the program's own. Equal
// texts are not repeated.
func licenceTexts(modules []*module) ([]byte, error) {
	var out bytes.Buffer
	owners := map[string][]string{}
	var texts []string
	for _, m := range modules[1:] {
		for _, path := range m.licenceFiles {
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			text := string(bytes.TrimSpace(content))
			if owners[text] == nil {
				texts = append(texts, text)
			}
			name, err := filepath.Rel(m.folder, path)
			if err != nil {
				return nil, err
			}
			owners[text] = append(owners[text], m.path+" "+m.version+": "+filepath.ToSlash(name))
		}
	}
	for _, text := range texts {
		for _, owner := range owners[text] {
			fmt.Fprintln(&out, "===", owner)
		}
		fmt.Fprintf(&out, "\n%s\n\n", text)
	}
	return out.Bytes(), nil
}
