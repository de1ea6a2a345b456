package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/pflag"
	jsonlog "k8s.io/component-base/logs/json"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/config"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/kernel"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/leftovers"
)

// Main runs the command with args and returns its exit code: 0 after success
// or after SIGTERM or SIGINT, 1 after an error, 2 if the command line or the
// configuration file is invalid.
func Main(args []string, stdout, stderr io.Writer) int {
	o, err := config.Parse(args)
	if err != nil {
		if _, unknown := errors.AsType[*pflag.NotExistError](err); unknown {
			err = fmt.Errorf("%w: kube-proxy --help lists the flags", err)
		}
		printError(stderr, err, o.LogsJSON())
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	defer klog.Flush()
	if err := execute(ctx, o, stdout); err != nil {
		klog.Flush()
		printError(stderr, err, o.LogsJSON())
		return 1
	}
	return 0
}

// printError prints the error that ends the command, in the format of the log.
func printError(stderr io.Writer, err error, inJSON bool) {
	if !inJSON {
		fmt.Fprintf(stderr, "kube-proxy: %v\n", err)
		return
	}
	logger, _ := jsonlog.NewJSONLogger(0, unbuffered{stderr}, nil, nil)
	logger.Error(err, "Command failed")
}

// unbuffered is a destination of a log.
type unbuffered struct{ io.Writer }

// Sync implements zapcore.WriteSyncer.
func (unbuffered) Sync() error { return nil }

// execute runs the action that the command line selects. The default is to
// serve until ctx ends.
func execute(ctx context.Context, o *config.Options, stdout io.Writer) error {
	switch {
	case o.Help:
		o.PrintUsage(stdout)
		return nil
	case o.Version.Printed():
		return printVersion(stdout, o)
	case o.WriteConfigTo != "":
		return o.WriteConfig()
	}
	if err := o.ApplyLogging(); err != nil {
		return err
	}
	logOptions(o)
	o.ApplyFeatureGates()
	switch {
	case o.Cleanup:
		return cleanUp(ctx)
	case o.InitOnly:
		return errors.Join(initNode(o)...)
	}
	setUpMemory(o.Configuration.EnableProfiling)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // also during the start, which it would end
	s, err := newServer(ctx, o)
	if err != nil {
		return err
	}
	defer s.proxier.Close()
	defer s.answers.Close()
	if s.unset, err = setUpNode(o); err != nil {
		return err
	}
	return s.run(ctx, hangups)
}

// logOptions logs the warnings of the configuration, and all flags in the
// format of kube-proxy.
func logOptions(o *config.Options) {
	for _, w := range o.Warnings() {
		klog.InfoS("Configuration warning", "warning", w)
	}
	flags := o.Flags()
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		klog.V(1).Infof("FLAG: --%s=%q", name, flags[name])
	}
}

// cleanUp removes the nftables tables and the rules of kube-proxy's other
// modes.
func cleanUp(ctx context.Context) error {
	if err := kernel.CheckNFTables(); err != nil {
		return err
	}
	err := leftovers.Remove(ctx)
	if proxier.CleanupLeftovers(ctx) {
		err = errors.Join(err, errors.New("failed to remove the nftables tables; see the log"))
	}
	return err
}
