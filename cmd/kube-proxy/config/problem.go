package config

import (
	"errors"
	"fmt"
	"strings"
)

// problem is an invalid value of a field.
type problem struct {
	field, text string
	// remedy is shown if the value comes from a file.
	remedy string
}

// explain returns an error with one line for each problem. A line begins with
// the flag, or the file and the field, that holds the value.
func (c *commandLine) explain(found []problem, file string) error {
	var errs []error
	for _, p := range found {
		text := p.text
		if file != "" {
			text += p.remedy
		}
		errs = append(errs, fmt.Errorf("%s: %s", c.origin(p.field, file), text))
	}
	return errors.Join(errs...)
}

// origin returns the flag, or the file and the field, that a field's value
// comes from.
func (c *commandLine) origin(field, file string) string {
	for _, f := range c.flags {
		if within(field, f.field) && (file == "" || f.overrides && c.changed(f.name)) {
			return "--" + f.name
		}
	}
	if file == "" {
		return field
	}
	return file + ": " + field
}

// within reports whether field is parent or a field below it.
func within(field, parent string) bool {
	rest, ok := strings.CutPrefix(field, parent)
	return ok && parent != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
