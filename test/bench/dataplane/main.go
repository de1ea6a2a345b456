package main

import (
	"context"
	"io"
	"os"

	"github.com/nftproxy/nftproxy/test/apiserver/benchmark"
	"github.com/nftproxy/nftproxy/test/apiserver/dataplane/result"
)

func main() {
	os.Exit(benchmark.Main("dataplane", func(args []string, help io.Writer) (benchmark.Run, error) {
		o, err := parseOptions(args, help)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, stdout, progress io.Writer) error {
			o.progress = progress
			return o.run(ctx, stdout)
		}, nil
	}))
}

// run measures, or reads what was measured, and shows it.
func (o *options) run(ctx context.Context, stdout io.Writer) error {
	return benchmark.Show(ctx, stdout, o.from, result.Read, o.measure, o.output, o.publish)
}
