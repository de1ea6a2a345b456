package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/nftproxy/nftproxy/test/lab"
)

// process is a program of the control plane that runs.
type process struct {
	name  string
	log   string // file of what it says
	cmd   *lab.Cmd
	ended chan struct{}
	err   error // of its end; to be read after ended
}

// start starts a program in the namespace. What it says is added to a file of the cluster's folder.
func (c *Cluster) start(name, program string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(c.config.Dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{name: name, log: log.Name(), ended: make(chan struct{})}
	p.cmd = c.config.Namespace.Command(context.Background(), filepath.Join(c.config.Programs, program), args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Dir = c.config.Dir

	started := make(chan error, 1)
	go func() {
		defer close(p.ended)
		// The kernel ends the process with the thread that made it, so that nothing stays behind when the tests are killed: the
		// thread waits.
		err := c.config.Namespace.Do(func() error {
			p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
			err := p.cmd.Cmd.Start()
			started <- err
			if err != nil {
				return err
			}
			return p.cmd.Wait()
		})
		p.err = err
		select {
		case started <- err: // the namespace could not be entered
		default:
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// end sends a signal and waits for the end of the process. One that ended before is no error.
func (p *process) end(signal syscall.Signal) {
	// It fails when the process is gone, which is what is asked for.
	_ = p.cmd.Process.Signal(signal)
	<-p.ended
}

// failure tells how a process ended that was to run on, with the end of its log.
func (p *process) failure() error {
	const enough = 2000
	text, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Errorf("%s ended: %w (%w)", p.name, p.err, err)
	}
	return fmt.Errorf("%s ended: %w\n%s", p.name, p.err, text[max(0, len(text)-enough):])
}
