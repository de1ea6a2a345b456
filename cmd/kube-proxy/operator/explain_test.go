package operator_test

import (
	"context"
	"errors"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// The sections of testdata/explain.txtar are commands on a node with a proxy
// that serves the manifests of testdata/explain.
func TestExplainServices(t *testing.T) {
	tabletest.NewNode(t)
	rules := tabletest.Rules()
	rules.NodePortAddresses = ruleset.NodePortAddresses{Primary: true}
	serveManifests(t, "node1", "testdata/explain", rules)
	compare(t, "testdata/explain.txtar")
}

// emptyProxy is a proxy that wants to drop all packets.
type emptyProxy struct {
	questions atomic.Int32
	err       error // instead of an answer
}

func (e *emptyProxy) page() socket.Page {
	return answer.Explain.AnsweredBy(
		func(_ context.Context, _ explain.Query, yield func(*explain.Desired) error) error {
			if e.questions.Add(1); e.err != nil {
				return e.err
			}
			drop := explain.Outcome{Action: explain.Drop, Probability: big.NewRat(1, 1)}
			drop.Reason.Text = "for a reason"
			return yield(&explain.Desired{Outcomes: []explain.Outcome{drop}})
		})
}

// A difference between the kernel and the proxy is shown if it stays. An error
// of the proxy is a note.
func TestExplainDifference(t *testing.T) {
	tabletest.NewNode(t)
	serve(t, table.Config{Rules: tabletest.Rules()})
	proxy := &emptyProxy{}
	listen(t, proxy.page())
	const fate = "ANSWER  one of 3 endpoints"
	const difference = "KERNEL  differs from the table that the proxy wants, which has: dropped: for a reason\n"
	got := run("explain", "10.96.0.10:80")
	if !strings.Contains(got, fate) || !strings.Contains(got, difference) || proxy.questions.Load() != 4 {
		t.Errorf("after %d questions: got\n%s\nwant\n%s", proxy.questions.Load(), got, difference)
	}
	proxy.err = errors.New("the proxy has no time")
	const note = "NOTE    The answer is from the kernel only, without unused endpoints: the proxy has no time.\n"
	if got := run("explain", "10.96.0.10:80"); !strings.Contains(got, fate) || !strings.Contains(got, note) {
		t.Errorf("got\n%s\nwant\n%s", got, note)
	}
}
