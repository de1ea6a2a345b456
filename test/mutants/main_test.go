package main

import "testing"

// Each mutant changes the product as it is now.
func TestMutantsApply(t *testing.T) {
	const root = "../.."
	l, err := readList(root)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, m := range l.Mutants {
		if m.Name == "" || m.Breaks == "" || m.Old == m.New || seen[m.Name] {
			t.Errorf("mutant %q: want another name, what it breaks, and a change", m.Name)
		}
		seen[m.Name] = true
		if _, err := m.apply(root); err != nil {
			t.Errorf("mutant %s: %v", m.Name, err)
		}
	}
}
