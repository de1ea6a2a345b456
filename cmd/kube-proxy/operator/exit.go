package operator

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Name is the name under which the binary is this command.
const Name = "nftproxy"

// exitError is an error with an exit code. Without err, nothing is printed: the
// output contains the reason.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

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
