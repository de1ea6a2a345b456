package main

import "testing"

// Each step of packet scripts and of table scripts is described.
func TestDescribed(t *testing.T) {
	for dir, known := range map[string]string{"../../packet": "connect", "../../../proxier/table": "scrub"} {
		all, err := read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if all[known].about == "" {
			t.Errorf("%s: got no step %s, or nothing about it", dir, known)
		}
		for name, step := range all {
			if step.about == "" {
				t.Errorf("%s: no comment describes the step %s", dir, name)
			}
		}
	}
}
