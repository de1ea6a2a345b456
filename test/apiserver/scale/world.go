package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nftproxy/nftproxy/test/apiserver/scale/observe"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
)

// world is a stage with the Services of a stock, on which processes are traced.
type world struct {
	*stage.Stage
	options *options
	tracing *observe.Tracing
	mount   string // of tracing, outside of the stage's folder: nothing below it must be removed
	stock   *stock
}

// newWorld makes a world whose Services have that many endpoints, and none of these yet.
func newWorld(ctx context.Context, o *options, endpoints int) (w *world, err error) {
	w = &world{options: o, stock: newStock(endpoints)}
	if err := w.openTracing(); err != nil {
		return nil, err
	}
	if w.Stage, err = stage.New(ctx, stage.Config{Name: "scale", Programs: o.programs.Folder, Profiling: o.profile}); err != nil {
		return nil, errors.Join(err, w.closeTracing())
	}
	return w, nil
}

func (w *world) openTracing() (err error) {
	if w.mount, err = os.MkdirTemp("", "nftproxy-tracing-"); err != nil {
		return err
	}
	if w.tracing, err = observe.OpenTracing(w.mount); err != nil {
		return errors.Join(err, os.Remove(w.mount))
	}
	return nil
}

func (w *world) closeTracing() error {
	if err := w.tracing.Close(); err != nil {
		return fmt.Errorf("unmount tracefs: %w", err)
	}
	return os.Remove(w.mount)
}

// close removes all that there is of the world.
func (w *world) close() error { return errors.Join(w.Stage.Close(), w.closeTracing()) }
