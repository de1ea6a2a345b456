package labtest

import (
	"cmp"
	"os"
	"strings"
)

// Subject returns the program under test in place of nftproxy: the name of one
// that the tests know, or a path. It is empty by default.
func Subject() string { return os.Getenv("SUBJECT") }

// SubjectMode returns the --proxy-mode of the subject.
func SubjectMode() string { return cmp.Or(os.Getenv("SUBJECT_MODE"), "nftables") }

// SubjectArgs returns further arguments of the subject.
func SubjectArgs() []string { return strings.Fields(os.Getenv("SUBJECT_ARGS")) }
