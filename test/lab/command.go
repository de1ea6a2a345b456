package lab

import (
	"context"
	"os/exec"
)

// Cmd is a program to run in a namespace. Only its own Start, Run, Output and
// CombinedOutput start it there; the methods of the embedded Cmd do not.
type Cmd struct {
	*exec.Cmd
	namespace *Namespace
}

// Command returns a program to run in the namespace, like
// [exec.CommandContext]. It is killed when the context ends or the namespace
// is closed.
func (n *Namespace) Command(ctx context.Context, name string, args ...string) *Cmd {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(n.life, cancel)
	return &Cmd{Cmd: exec.CommandContext(ctx, name, args...), namespace: n}
}

// Start starts the program. A child process is in the namespace of the thread
// that creates it.
func (c *Cmd) Start() error { return c.namespace.Do(c.Cmd.Start) }

// Run runs the program.
func (c *Cmd) Run() error { return c.namespace.Do(c.Cmd.Run) }

// Output runs the program and returns its standard output.
func (c *Cmd) Output() ([]byte, error) { return within(c.namespace, c.Cmd.Output) }

// CombinedOutput runs the program and returns its standard output and
// standard error.
func (c *Cmd) CombinedOutput() ([]byte, error) { return within(c.namespace, c.Cmd.CombinedOutput) }
