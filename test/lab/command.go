package lab

import (
	"context"
	"os/exec"
)

// Cmd is a program that runs in a namespace of the lab. Use its own Start, Run,
// Output and CombinedOutput: those of the embedded Cmd would start it elsewhere.
type Cmd struct {
	*exec.Cmd
	namespace *Namespace
}

// Command prepares a program to be run in the namespace, as [exec.CommandContext]
// does. It is killed when the context ends or the namespace is closed.
func (n *Namespace) Command(ctx context.Context, name string, args ...string) *Cmd {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(n.life, cancel)
	return &Cmd{Cmd: exec.CommandContext(ctx, name, args...), namespace: n}
}

// Start starts the program: a child is in the namespace of the thread that makes it.
func (c *Cmd) Start() error { return c.namespace.Do(c.Cmd.Start) }

// Run starts the program and waits for its end.
func (c *Cmd) Run() error { return c.namespace.Do(c.Cmd.Run) }

// Output runs the program and returns its standard output.
func (c *Cmd) Output() ([]byte, error) { return within(c.namespace, c.Cmd.Output) }

// CombinedOutput runs the program and returns its standard output and error.
func (c *Cmd) CombinedOutput() ([]byte, error) { return within(c.namespace, c.Cmd.CombinedOutput) }
