package listing

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Program is a program nft that runs commands one after another, in one network
// namespace. A program for each command takes several times as long, most of it
// to start.
type Program struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	out   *bufio.Reader
}

// Start starts nft in the network namespace of the calling thread, or in a new
// one.
func Start(newNamespace bool) (*Program, error) {
	cmd := exec.Command("nft", "--stateless", "--interactive")
	cmd.Env = append(os.Environ(), "HOME=/dev/null") // otherwise, nft reads and writes a file with earlier commands
	if newNamespace {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	input, errInput := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	cmd.Stderr = cmd.Stdout
	if err := errors.Join(errInput, errOut, cmd.Start()); err != nil {
		return nil, err
	}
	p := &Program{cmd, input, bufio.NewReader(out)}
	_, err := p.Run("") // nft begins with a message if it does not know the terminal
	return p, err
}

// Close ends nft.
func (p *Program) Close() error {
	err := p.input.Close()
	_, _ = io.Copy(io.Discard, p.out) // until it has ended
	return errors.Join(err, p.cmd.Wait())
}

// Run runs a command and returns its output. nft does not mark the end of an
// output, so an invalid command follows, and its error message marks the end.
func (p *Program) Run(command string) (string, error) {
	const end = "end-of-output"
	if _, err := fmt.Fprintf(p.input, "%s\n%s\n", command, end); err != nil {
		return "", err
	}
	var lines []string
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("nft ended: %w: %s", err, strings.Join(lines, ""))
		}
		if strings.TrimSpace(line) != end {
			lines = append(lines, line)
			continue
		}
		_, err = p.out.ReadString('\n') // the mark under the error
		text := strings.Join(lines[:max(0, len(lines)-1)], "")
		if strings.HasPrefix(text, "Error: ") || strings.Contains(text, "\nError: ") {
			err = fmt.Errorf("nft %s: %s", command, text)
		}
		return text, err
	}
}

// Load replaces the ruleset with a file in nft syntax.
func (p *Program) Load(text string) error {
	if _, err := p.Run("flush ruleset"); err != nil {
		return err
	}
	return p.Add(text)
}

// Add loads a file in nft syntax.
func (p *Program) Add(text string) error {
	file, err := os.CreateTemp("", "*.nft")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	_, err = p.Run(fmt.Sprintf("include %q", file.Name()))
	return err
}
