package answer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/script"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// TestScripts runs the scripts about the answers of a proxy on a node. These
// are their steps. FAMILY is IPv4 or IPv6.
//
//	proxy FAMILY… [budget=N]   makes a proxy, with a budget of rows for each Service
//	sample                     passes the sample Services
//	apply FILE [FAMILY]        passes objects, to both families or one
//	sync
//	nft COMMANDS               is another program that changes rules; a semicolon separates them
//	state not-listed|canceled|waiting|failed|busy-FAMILY|fine
//	services [NAMESPACE [NAME]]   prints the ports of Services and their frontends
//	diff                       compares the tables
//	explain DESTINATION SOURCE explains a TCP packet: what the proxy adds
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Setup: func(e *script.Env) (map[string]script.Command, error) {
		s := &story{t: e.T.(*testing.T)}
		tabletest.NewNode(e.T)
		return script.Steps(map[string]any{
			"proxy": s.start, "apply": s.apply, "state": s.setState,
			"sample": func() { tabletest.PassSample(s.proxy) },
			"sync":   func() { tabletest.Sync(e.T, s.proxy) },
			"nft": func(words ...string) {
				tabletest.LoadNFT(e.T, strings.ReplaceAll(strings.Join(words, " "), ";", "\n"))
			},
			"services": s.services, "diff": s.diff, "explain": s.explain,
		}), nil
	}})
}

// story is the state of a script.
type story struct {
	t        *testing.T
	proxy    *fakeProxy
	answers  *Answers
	canceled bool // the client has closed its connection
}

func familyNamed(name string) nft.Family {
	return map[string]nft.Family{"IPv4": nft.IPv4, "IPv6": nft.IPv6}[name]
}

func (s *story) start(args ...string) error {
	rules := tabletest.Rules()
	var families []nft.Family
	for _, arg := range args {
		if budget, ok := strings.CutPrefix(arg, "budget="); ok {
			n, err := strconv.Atoi(budget)
			if err != nil {
				return err
			}
			rules.Budgets.Service = n
			continue
		}
		families = append(families, familyNamed(arg))
	}
	s.answers, s.proxy = newAnswersWith(s.t, rules, families...)
	s.proxy.setUp(s.t)
	return nil
}

func (s *story) apply(sc *script.Script, file string, family ...string) error {
	if len(family) == 0 {
		return tabletest.Apply(s.proxy, sc.ReadFile(file))
	}
	for _, t := range s.proxy.tables {
		if t.Family() == familyNamed(family[0]) {
			return tabletest.Apply(t, sc.ReadFile(file))
		}
	}
	return errors.New("no such family")
}

func (s *story) setState(state string) {
	busy, _ := strings.CutPrefix(state, "busy-")
	s.proxy.notListed, s.canceled, s.proxy.busy = state == "not-listed", state == "canceled", familyNamed(busy)
	s.proxy.state = proxier.FamilyStatus{}
	switch state {
	case "not-listed":
		s.answers.config.API = func() *apiclient.ContactState {
			return &apiclient.ContactState{Failed: time.Now(), Error: "refused"}
		}
	case "waiting":
		s.proxy.state.WaitingSince = time.Now()
	case "failed":
		s.proxy.state.LastSync = &proxier.SyncStatus{Error: "no space"}
	}
}

func (s *story) context() (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(s.t.Context())
	if s.canceled {
		stop()
	}
	return ctx, stop
}

func (s *story) services(of ...string) (text string, err error) {
	var q, last cluster.ServiceName
	for i, to := range []*string{&q.Namespace, &q.Name}[:len(of)] {
		*to = of[i]
	}
	err = s.answers.services(s.t.Context(), q, func(v *table.ServiceView) error {
		name := cluster.ServiceName{Namespace: v.Namespace, Name: v.Name}
		if name.Compare(last) <= 0 {
			s.t.Errorf("got %s after %s", name, last)
		}
		last = name
		for _, p := range v.Ports {
			text += fmt.Sprintf("%s:%s", name, p.Name)
			for _, f := range p.Frontends {
				text += " " + f.Address.String()
			}
			text += "\n"
			if q.Name == "" && p.Endpoints != nil {
				s.t.Errorf("%s: a list of Services contains endpoints", name)
			}
		}
		return nil
	})
	return text, err
}

func (s *story) diff() (text string, err error) {
	var last keep.DiffStep
	err = s.answers.diff(s.t.Context(), struct{}{}, func(step *keep.DiffStep) error {
		if step.Rows < last.Rows || last.Done {
			s.t.Errorf("got step %+v after %+v", step, last)
		}
		last = *step
		for _, d := range step.Differences {
			line := strings.Join([]string{d.Family.Name(), string(d.Kind), d.Object, d.Owner}, " ")
			text += strings.TrimSpace(line) + "\n"
		}
		return nil
	})
	if err == nil && (!last.Done || last.Rows < last.AllRows || last.AllRows == 0) {
		err = fmt.Errorf("got the last step %+v", last)
	}
	return text, err
}

func (s *story) explain(to netip.AddrPort, from netip.Addr) (text string, err error) {
	ctx, stop := s.context()
	defer stop()
	q := explain.Query{Destination: to, Protocol: unix.IPPROTO_TCP, Source: from}
	err = s.answers.explain(ctx, q, func(d *explain.Desired) error {
		text = "owner: " + d.ServicePort + "\n"
		if d.Pending != "" {
			text += "pending: " + d.Pending + "\n"
		}
		if d.HealthCheck.Code != "" {
			text += "health check: " + d.HealthCheck.Text + "\n"
		}
		for _, note := range d.Notes {
			text += "note: " + note + "\n"
		}
		for _, u := range d.Unused {
			text += fmt.Sprintln("unused:", u.Addr, u.Text)
		}
		return nil
	})
	return text, err
}
