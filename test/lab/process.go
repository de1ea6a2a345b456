package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
)

// ProcessConfig describes a program that runs in a namespace.
type ProcessConfig struct {
	Program string
	Args    []string
	// Env is the environment. The default is the environment of this process.
	Env []string
	// Log is the file to which the output is appended.
	Log string
	// Attributes are further attributes of the process.
	Attributes syscall.SysProcAttr
	// Prepare is called on the thread that starts the process, before it does;
	// it may be nil.
	Prepare func() error
	// Ended is called if the process ends before Signal, End or MayEnd; it may
	// be nil.
	Ended func(error)
}

// Process is a running program. The kernel kills it if this process dies.
type Process struct {
	PID   int
	Began time.Time // just before exec
	// Running is done when the process ended, or with the context of
	// StartProcess. Its cause describes how the process ended.
	Running context.Context

	cmd    *Cmd
	log    string // file
	begin  int64  // of the output in the file
	mayEnd atomic.Bool
	ended  chan struct{}
}

// StartProcess starts a program in the namespace. It does not end with ctx.
func (n *Namespace) StartProcess(ctx context.Context, config ProcessConfig) (*Process, error) {
	log, err := os.OpenFile(config.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	begin, errSeek := log.Seek(0, io.SeekEnd)
	program, errPath := exec.LookPath(config.Program)
	program, errAbs := filepath.Abs(program) // the process has another folder
	if err := errors.Join(errSeek, errPath, errAbs); err != nil {
		return nil, err
	}
	name := filepath.Base(program)
	running, end := context.WithCancelCause(ctx)
	p := &Process{Running: running, log: config.Log, begin: begin, ended: make(chan struct{})}
	p.cmd = n.Command(context.Background(), program, config.Args...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir, p.cmd.Env = log, log, filepath.Dir(config.Log), config.Env
	config.Attributes.Pdeathsig, config.Attributes.Setpgid = syscall.SIGKILL, true
	p.cmd.SysProcAttr = &config.Attributes

	started := make(chan error, 1)
	go func() {
		defer close(p.ended)
		// Pdeathsig refers to the thread that started the process, so this
		// goroutine keeps its thread until the process ends.
		err := n.Do(func() error {
			err := p.exec(config.Prepare)
			started <- err
			if err != nil {
				return err
			}
			return p.cmd.Wait()
		})
		if err == nil {
			err = errors.New("exit code 0")
		}
		select {
		case started <- err: // the namespace could not be entered
		default:
		}
		end(fmt.Errorf("%s ended (%w); its log:\n%s", name, err, p.EndOfLog()))
		if config.Ended != nil && p.PID > 0 && !p.mayEnd.Load() {
			config.Ended(context.Cause(running))
		}
	}()
	if err := <-started; err != nil {
		<-p.ended
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

func (p *Process) exec(prepare func() error) error {
	if prepare != nil {
		if err := prepare(); err != nil {
			return err
		}
	}
	p.Began = time.Now()
	if err := p.cmd.Cmd.Start(); err != nil {
		return err
	}
	p.PID = p.cmd.Process.Pid
	return nil
}

// Log returns the output of the process.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[min(p.begin, int64(len(text))):])
}

// EndOfLog returns the last lines of the log.
func (p *Process) EndOfLog() string {
	const enough = 3000
	text := p.Log()
	return text[max(0, len(text)-enough):]
}

// MayEnd permits that the process ends.
func (p *Process) MayEnd() { p.mayEnd.Store(true) }

// Signal sends a signal, after which the process may end.
func (p *Process) Signal(signal syscall.Signal) {
	p.MayEnd()
	_ = p.cmd.Process.Signal(signal) // fails if the process ended already
}

// End sends a signal and waits until the process ended. A process that does not
// end within 30 seconds is killed.
func (p *Process) End(signal syscall.Signal) {
	const patience = 30 * time.Second
	p.Signal(signal)
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// Wait waits until the process ended. It returns its exit code, or -1 after a
// signal.
func (p *Process) Wait() int {
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

// Pause waits, and returns an error if the process ends meanwhile.
func (p *Process) Pause(d time.Duration) error {
	select {
	case <-p.Running.Done():
		return context.Cause(p.Running)
	case <-time.After(d):
		return nil
	}
}

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

// Sleep waits, and reports whether ctx has not ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}
