package answer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/history"
	"github.com/nftproxy/nftproxy/proxier/localhost"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

var _ Proxy = (*proxier.Proxier)(nil)

// errBusy is the error of a family that does not answer.
var errBusy = errors.New("busy")

// fakeProxy is a Proxy of tables that nothing else uses.
type fakeProxy struct {
	cluster.Sinks // the tables
	tables        []*table.Table
	mu            sync.Mutex // held by queries

	notListed bool
	busy      nft.Family           // a family that does not answer
	state     proxier.FamilyStatus // of each family
}

func (p *fakeProxy) Status() proxier.Status {
	s := proxier.Status{Listed: !p.notListed}
	for _, t := range p.tables {
		f := p.state
		f.Family, f.Stats = t.Family(), t.Stats()
		s.Families = append(s.Families, f)
	}
	return s
}

func (p *fakeProxy) Query(ctx context.Context, f nft.Family, ask func(*table.Table) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil || f == p.busy {
		return fmt.Errorf("%s: %w", f.Name(), errBusy)
	}
	for _, t := range p.tables {
		if t.Family() == f {
			return ask(t)
		}
	}
	return fmt.Errorf("the proxy does not serve %s", f.Name())
}

func (p *fakeProxy) History(history.Query) []history.Entry { return nil }

func (p *fakeProxy) HasSlice(cluster.ServiceName) bool { return true }

func (p *fakeProxy) Healthy() bool { return p.state.LastSync == nil }

func (p *fakeProxy) Localhost(nft.Family, uint16) (localhost.State, bool) {
	return localhost.State{}, false
}

// newAnswers returns the Answers of a proxy with tables of these families.
func newAnswers(t *testing.T, families ...nft.Family) (*Answers, *fakeProxy) {
	t.Helper()
	return newAnswersWith(t, tabletest.Rules(), families...)
}

func newAnswersWith(t *testing.T, rules ruleset.Config, families ...nft.Family) (*Answers, *fakeProxy) {
	t.Helper()
	tables, err := table.New(table.Config{Rules: rules}, families...)
	must.NoError(t, err)
	p := &fakeProxy{tables: tables}
	for _, table := range tables {
		t.Cleanup(func() { table.Close() })
		p.Sinks = append(p.Sinks, table)
	}
	a, err := New(Config{Proxy: p, Version: "v1.2.3", NodeEligible: func() bool { return true }})
	must.NoError(t, err)
	t.Cleanup(a.Close)
	return a, p
}

// one returns an answer that has one value.
func one[Q, A any](t *testing.T, answer socket.Answer[Q, A], query Q) (value *A, err error) {
	t.Helper()
	err = answer(t.Context(), query, func(v *A) error {
		value = v
		return nil
	})
	return value, err
}

// setUp connects the tables to the kernel.
func (p *fakeProxy) setUp(t *testing.T) {
	t.Helper()
	must.NoError(t, p.Setup())
	p.SetNode(tabletest.Node())
}

// The status of the program contains the status of the proxy.
func TestStatus(t *testing.T) {
	a, _ := newAnswers(t, nft.IPv4)
	s, err := one(t, a.status, struct{}{})
	if err != nil || s.Version != "v1.2.3" || !s.NodeEligible || !s.Listed || len(s.Families) != 1 || s.API != nil {
		t.Errorf("got %+v, %v", s, err)
	}
}

// Proxies and commands of different versions use the same paths and parameters.
func TestProtocol(t *testing.T) {
	name := cluster.ServiceName{Namespace: "default", Name: "web"}
	for got, want := range map[string]string{
		Status.Path + "?" + Status.Format(struct{}{}).Encode(): "/v1/status?",
		Services.Path + "?" + Services.Format(name).Encode():   "/v1/services?name=web&namespace=default",
		Diff.Path:    "/v1/diff",
		Explain.Path: "/v1/explain",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got, err := Services.Parse(Services.Format(name)); got != name || err != nil {
		t.Errorf("got %s, %v; want %s", got, err, name)
	}
}
