package config

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// watchInterval is the interval at which the configuration file is read. The
// kubelet takes longer to update it, and each read wakes the idle process.
const watchInterval = 5 * time.Second

// FileProblem is why the content of the configuration file is not in effect.
type FileProblem struct {
	File, Error string
	Since       time.Time
}

// FileProblem returns why the content of the configuration file is not in
// effect, nil if it is. Any goroutine can call it.
func (o *Options) FileProblem() *FileProblem { return o.problem.Load() }

// ignoreFile records and logs why the configuration file is not used.
func (o *Options) ignoreFile(logger klog.Logger, err error, message string) {
	o.problem.Store(&FileProblem{o.ConfigFile, oneLine(err), time.Now()})
	logger.Error(err, message+", keeping the current configuration", "file", o.ConfigFile)
}

// WatchConfigFile returns an error that lists the changed fields when the
// content of the configuration file differs from the content that Parse read.
// It returns nil when ctx ends.
//
// It ignores content that Parse refuses, and logs the reason: otherwise one
// mistake in a ConfigMap would end the proxies of all nodes. It also ignores
// a missing file until the file exists again.
//
// It polls the file, because inotify reports no change of the target of a
// symbolic link. In the volume of a ConfigMap the kubelet replaces such a
// link two levels above the file.
//
// It checks content that it has read twice in a row, because the first read
// may return a partly written file.
func (o *Options) WatchConfigFile(ctx context.Context) error {
	if o.ConfigFile == "" {
		<-ctx.Done()
		return nil
	}
	logger := klog.FromContext(ctx)
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	seen, checked := o.content, o.content
	unreadable := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := o.readFile(o.ConfigFile)
		if err != nil {
			if !unreadable {
				o.ignoreFile(logger, err, "Failed to read the configuration file")
			}
			unreadable, checked = true, nil
			continue
		}
		unreadable = false
		if bytes.Equal(now, seen) && !bytes.Equal(now, checked) {
			if err := o.checkContent(logger, now); err != nil {
				return err
			}
			checked = now
		}
		seen = now
	}
}

// checkContent returns an error that lists the changed fields if Parse would
// accept this content of the file with the same command line.
func (o *Options) checkContent(logger klog.Logger, content []byte) error {
	if bytes.Equal(content, o.content) {
		o.problem.Store(nil)
		logger.Info("The configuration file matches the current configuration again", "file", o.ConfigFile)
		return nil
	}
	if _, err := parseWith(o.args, func(string) ([]byte, error) { return content, nil }); err != nil {
		o.ignoreFile(logger, err, "Ignoring an invalid configuration file")
		return nil
	}
	return fmt.Errorf("content of the configuration file %s was updated: %s; exiting for a restart",
		o.ConfigFile, changes(o.content, content))
}
