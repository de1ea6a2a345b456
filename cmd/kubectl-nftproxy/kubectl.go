package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"golang.org/x/term"
)

// kubectl runs the program kubectl.
type kubectl struct {
	program string
	flags   []string // of every call
}

func newKubectl(a arguments) (kubectl, error) {
	program, err := exec.LookPath("kubectl")
	if err != nil {
		return kubectl{}, errors.New("the program kubectl is not on the PATH")
	}
	return kubectl{program, append(a.connection, "--namespace="+a.namespace)}, nil
}

func (k kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, k.program, append(k.flags[:len(k.flags):len(k.flags)], args...)...)
}

// output returns the standard output of kubectl.
func (k kubectl) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := k.command(ctx, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if text := oneLine(stderr.String()); err != nil && text != "" {
		err = errors.New(text)
	}
	return out, err
}

// pods returns the pods of nftproxy, one for each node.
func (k kubectl) pods(ctx context.Context, selector string) ([]pod, error) {
	out, err := k.output(ctx, "get", "pods", "--selector="+selector, "--output=json")
	if err != nil {
		return nil, fmt.Errorf("list the pods: %w", err)
	}
	return parsePods(out)
}

// streams are the standard streams of a command in a pod.
type streams struct {
	stdin          io.Reader // nil unless stdin and stdout are a terminal
	stdout, stderr io.Writer
}

// result is the result of a command in a pod.
type result struct {
	code    int    // exit code of the command
	problem string // the reason why it did not run, "" if it ran
}

// terminated matches the line that kubectl adds if the exit code of a command
// is not 0.
var terminated = regexp.MustCompile(`(?m)^command terminated with exit code \d+\n?`)

// exec runs nftproxy in a pod.
func (k kubectl) exec(ctx context.Context, p pod, s streams, command []string) result {
	if p.problem != "" {
		return result{exitUnreachable, p.problem}
	}
	args := []string{"exec", p.name, "--container=" + p.container}
	if s.stdin != nil {
		args = append(args, "--stdin", "--tty")
	}
	cmd := k.command(ctx, append(append(args, "--", "nftproxy"), command...)...)
	var stderr buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.stdin, s.stdout, &stderr
	cmd.WaitDelay = time.Second // after the end of the context
	err := cmd.Run()
	if err != nil && ctx.Err() != nil {
		return result{exitUnreachable, fmt.Sprintf("pod %s: %v", p.name, context.Cause(ctx))}
	}
	if stderr.cut {
		return result{exitUnreachable, fmt.Sprintf("pod %s: %v", p.name, errOutput)}
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return result{exitUnreachable, err.Error()}
	}
	text := string(stderr.data)
	if err != nil && !terminated.MatchString(text) || noProgram(text) {
		return result{exitUnreachable, p.explain(text)}
	}
	io.WriteString(s.stderr, terminated.ReplaceAllString(text, ""))
	return result{code: cmd.ProcessState.ExitCode()}
}

// noProgram reports whether the standard error of kubectl comes from a
// container runtime (runc or crun) that found no program.
func noProgram(stderr string) bool {
	return regexp.MustCompile(`executable file .*not found`).MatchString(stderr)
}

// explain returns the reason why a command did not run, from the standard error
// of kubectl.
func (p pod) explain(stderr string) string {
	if noProgram(stderr) {
		return fmt.Sprintf("pod %s has no program nftproxy: its image %s is not the image of nftproxy", p.name, p.image)
	}
	return fmt.Sprintf("pod %s: %s", p.name, oneLine(stderr))
}

// oneLine joins the lines of a text.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// isTerminal reports whether the standard streams are a terminal. nftproxy then
// gets one, too, so that an interrupt reaches it.
func isTerminal() bool {
	return term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}
