package tour

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/nftproxy/nftproxy/test/demo/page"
	"github.com/nftproxy/nftproxy/test/demo/stage"
)

// Summary is what came of a tour.
type Summary struct {
	// Checks is how many things were compared with what they should be.
	Checks int
	// Failures tell what was not.
	Failures []string
	// Connections is how many attempts to connect were made.
	Connections int
}

// tour is a tour under way.
type tour struct {
	page        *page.Page
	stage       *stage.Stage
	nft         string // program
	services    services
	summary     Summary
	connections atomic.Int64
}

// Run shows all scenes on the page. The error tells what kept the tour from going on, which includes the end of the context;
// what was shown but is not as it should be stands in the summary.
func Run(ctx context.Context, to *page.Page, on *stage.Stage, nft string) (Summary, error) {
	known, err := findServices(on)
	if err != nil {
		return Summary{}, err
	}
	t := &tour{page: to, stage: on, nft: nft, services: known}
	scenes := []func(context.Context) error{
		t.showCluster, t.showServices, t.showAnswers, t.showRefusals, t.showScaling, t.showFlow, t.showRestart, t.showRepair,
		t.showRuleset,
	}
	for _, scene := range scenes {
		err := scene(ctx)
		t.summary.Connections = int(t.connections.Load())
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = t.page.Err()
		}
		if err == nil {
			err = t.stage.Failure()
		}
		if err != nil {
			return t.summary, err
		}
	}
	return t.summary, nil
}

// check notes whether something is as it should be; the text tells what it is instead.
func (t *tour) check(ok bool, format string, args ...any) page.Mark {
	t.summary.Checks++
	if !ok {
		t.summary.Failures = append(t.summary.Failures, fmt.Sprintf(format, args...))
	}
	return page.MarkOf(ok)
}

// checkError is check for what says by an error that it is wrong.
func (t *tour) checkError(what string, err error) page.Mark {
	return t.check(err == nil, "%s: %v", what, err)
}

// claim checks a sentence, and shows it.
func (t *tour) claim(ok bool, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	t.page.Result(t.check(ok, "not so: %s", text), "%s", text)
}
