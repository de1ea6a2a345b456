package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
)

// refuse makes some of the proxy's requests to the kernel fail for a time, as
// if the kernel had no memory or no room in a buffer. No rule changes, so no
// connection may fail. strace injects the errors.
func (f *faults) refuse(ctx context.Context, n *node, d draw) error {
	errors := []string{"ENOMEM", "ENOBUFS", "EINTR", "EAGAIN"}
	from, step := 1+d.number/4%3, 2+d.number/16%4 // which requests of each thread
	inject := fmt.Sprintf("inject=sendto,sendmsg:error=%s:when=%d+%d", errors[d.number%4], from, step)
	cmd := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=sendto,sendmsg", "-e", inject,
		"-p", strconv.Itoa(n.process.PID))
	var out bytes.Buffer
	cmd.Stderr, cmd.SysProcAttr = &out, &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return err
	}
	sleep(ctx, d.lasts)
	_ = cmd.Process.Signal(syscall.SIGTERM) // it ends early only if it failed
	if err := cmd.Wait(); out.Len() > 0 {
		return fmt.Errorf("strace: %w: %s", err, out.Bytes())
	}
	return nil
}
