package operator

import (
	"fmt"

	"github.com/spf13/cobra"
)

// exitMisuse is the exit code of a command line with an error.
const exitMisuse = 2

// misusef returns an error of the command line.
func misusef(format string, args ...any) error {
	return exitError{code: exitMisuse, err: fmt.Errorf(format, args...)}
}

// misuse returns an error as one of the command line, nil without an error.
func misuse(err error) error {
	if err == nil {
		return nil
	}
	return exitError{code: exitMisuse, err: err}
}

// checkArguments makes errors about the arguments of all commands those of
// misuse.
func checkArguments(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return misuse(check(cmd, args)) }
	}
	for _, sub := range cmd.Commands() {
		checkArguments(sub)
	}
}
