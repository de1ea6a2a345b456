package config

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"
)

// watchInterval is the time between two looks at the configuration file.
const watchInterval = time.Second

// WatchConfigFile returns an error that says what changed when the configuration file has another content than Parse read, and nil when ctx
// ends, or there is no such file. Content with which the same command line would not start ends nothing: it is logged, and the watch goes on. It
// reads the file from time to time instead of waiting for events: they tell nothing of what symbolic links lead to, as in the volume of
// a ConfigMap, where the kubelet replaces a link two levels away. A file that is gone is no change until it is there again.
func (o *Options) WatchConfigFile(ctx context.Context) error {
	if o.ConfigFile == "" {
		<-ctx.Done()
		return nil
	}
	return o.watchFile(ctx, watchInterval)
}

// watchFile looks at the file from time to time. A content counts when two looks see the same, since a file can be met half written.
func (o *Options) watchFile(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	seen, judged := o.read, o.read
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
				klog.ErrorS(err, "Cannot read the configuration file any more, going on with what was read", "file", o.ConfigFile)
			}
			unreadable = true
			continue
		}
		unreadable = false
		if bytes.Equal(now, seen) && !bytes.Equal(now, judged) {
			if err := o.judge(now); err != nil {
				return err
			}
			judged = now
		}
		seen = now
	}
}

// judge returns an error that says what changed, if the command line would start with this content of the file. What it would not start with is
// logged: to end for that would leave the node without a proxy, and so all nodes, once a ConfigMap has a mistake in it.
func (o *Options) judge(content []byte) error {
	if bytes.Equal(content, o.read) {
		klog.InfoS("The configuration file has the content again that was read", "file", o.ConfigFile)
		return nil
	}
	if _, err := parseWith(o.args, func(string) ([]byte, error) { return content, nil }); err != nil {
		klog.ErrorS(err, "The new content of the configuration file does not load, the configuration that was read stays in force", "file", o.ConfigFile)
		return nil
	}
	return fmt.Errorf("content of the configuration file %s was updated: %s; exiting, to be restarted with it", o.ConfigFile, changes(o.read, content))
}
