package benchmark

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
