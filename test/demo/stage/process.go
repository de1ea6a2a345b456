package stage

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// Run runs a program in the namespace of a host and returns what it prints. The error tells what it printed on its
// standard error.
func (s *Stage) Run(ctx context.Context, host, program string, args ...string) (string, error) {
	ns, err := s.Host(host)
	if err != nil {
		return "", err
	}
	cmd := ns.Command(ctx, program, args...)
	cmd.SysProcAttr = attributes()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w %s", s.CommandLine(host, strings.Join(cmd.Args, " ")), err, stderr.String())
	}
	return string(out), nil
}

// attributes make the kernel end a process with its parent, however that ends, and keep the terminal's Ctrl-C from it:
// whoever gets that ends the processes in order.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// startAndWait starts a program and closes ended when it is over, after setting the error. It waits on the thread that
// made the process: Pdeathsig is about the thread.
func startAndWait(do func(func() error) error, cmd *exec.Cmd, result *error, ended chan<- struct{}) error {
	started := make(chan error, 1)
	go func() {
		defer close(ended)
		*result = do(func() error {
			err := cmd.Start()
			started <- err
			if err != nil {
				return err
			}
			return cmd.Wait()
		})
		select {
		case started <- *result: // the namespace could not be entered
		default:
		}
	}()
	return <-started
}
