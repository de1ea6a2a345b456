package benchmark

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// Result is what a benchmark measured.
type Result interface {
	// WriteAll writes it as JSON, as a table and as plots into a folder.
	WriteAll(folder string) error
	// Table writes the table.
	Table(io.Writer) error
}

// Show shows a result, and writes it into folders, those that are "" left out: one that is read from a file, or else one that is measured now.
func Show[R Result](ctx context.Context, stdout io.Writer, from string, read func(path string) (R, error), measure func(context.Context) (R, error),
	folders ...string,
) error {
	get := func() (R, error) { return measure(ctx) }
	if from != "" {
		get = func() (R, error) { return read(from) }
	}
	r, err := get()
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if folder == "" {
			continue
		}
		if err := r.WriteAll(folder); err != nil {
			return err
		}
	}
	return r.Table(stdout)
}

// WriteJSON writes a value into a file, whose folder is made.
func WriteJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// ReadJSON reads what WriteJSON wrote.
func ReadJSON[R any](path string) (*R, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(R)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// WriteFiles writes NAME.json, the table NAME.txt and the plots, of that size, into a folder.
func WriteFiles(folder, name string, r Result, plots map[string]*plot.Plot, width, height vg.Length) error {
	if err := WriteJSON(filepath.Join(folder, name+".json"), r); err != nil {
		return err
	}
	table, err := os.Create(filepath.Join(folder, name+".txt"))
	if err != nil {
		return err
	}
	defer table.Close()
	if err := r.Table(table); err != nil {
		return err
	}
	for name, p := range plots {
		if err := p.Save(width, height, filepath.Join(folder, name+".svg")); err != nil {
			return fmt.Errorf("plot %s: %w", name, err)
		}
	}
	return nil
}
