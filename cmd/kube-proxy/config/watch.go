package config

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/klog/v2"
)

// watchInterval is the time between two looks at the configuration file.
const watchInterval = time.Second

// WatchFile returns an error that says what changed when the content of a file changes, and nil when ctx ends. It reads the file from
// time to time instead of waiting for events: they tell nothing of what symbolic links lead to, as in the volume of
// a ConfigMap, where the kubelet replaces a link two levels away. A file that is gone is no change until it is there again.
func WatchFile(ctx context.Context, file string) error {
	read, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("watch the configuration: %w", err)
	}
	return watchContent(ctx, file, read, watchInterval)
}

// WatchConfigFile is WatchFile for the configuration file, beginning with what Parse read. Without a configuration file it returns when ctx ends.
func (o *Options) WatchConfigFile(ctx context.Context) error {
	if o.ConfigFile == "" {
		<-ctx.Done()
		return nil
	}
	return watchContent(ctx, o.ConfigFile, o.read, watchInterval)
}

// watchContent compares the content with what was read. A new one counts when two looks see the same, since a file can be met half written.
func watchContent(ctx context.Context, file string, read []byte, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	seen := read
	unreadable := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := os.ReadFile(file)
		if err != nil {
			if !unreadable {
				klog.ErrorS(err, "Cannot read the configuration file any more, going on with what was read", "file", file)
			}
			unreadable = true
			continue
		}
		unreadable = false
		if !bytes.Equal(now, read) && bytes.Equal(now, seen) {
			return fmt.Errorf("content of the configuration file %s was updated: %s; exiting, to be restarted with it", file, changes(read, now))
		}
		seen = now
	}
}
