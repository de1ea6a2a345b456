package operator_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/history"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/script"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// TestScripts runs the scripts about nftproxy on a node. These are their steps,
// besides exec and other standard ones:
//
//	node                    makes a node
//	serve                   writes the table of the sample Services
//	serve-manifests [DIR]   runs a proxy that serves a folder, or testdata/cluster
//	proxy ANSWER=FILE…      runs a proxy with these answers, in YAML: status, services, diff, history
//	proxy ANSWER-error=TEXT and an error after the answer, also of explain
//	drop-capabilities       drops the privileges of the script
//	nftproxy [ARG…]         prints the output, and the exit code if it is not 0
func TestScripts(t *testing.T) {
	os.Setenv("KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK", "1")
	script.Run(t, script.Suite{Namespace: true, Setup: func(e *script.Env) (map[string]script.Command, error) {
		t := e.T.(*testing.T)
		return script.Steps(map[string]any{
			"node":  func() { tabletest.NewNode(t) },
			"serve": func() { serve(t, table.Config{Rules: tabletest.Rules()}) },
			"serve-manifests": func(s *script.Script, args []string) {
				dir := "testdata/cluster"
				if len(args) > 0 {
					dir = s.MkAbs(args[0])
				}
				serveManifests(t, "node1", dir, tabletest.Rules())
			},
			"drop-capabilities": func() { dropCapabilities(t) },
			"proxy": func(s *script.Script, args []string) error {
				pages, err := pagesOf(s, args)
				if err == nil {
					listen(t, pages...)
				}
				return err
			},
			"nftproxy": func(s *script.Script, args []string) string {
				return strings.ReplaceAll(run(args...), s.Getenv("WORK")+"/", "")
			},
		}), nil
	}})
}

// pagesOf returns the pages of a proxy with answers and errors.
func pagesOf(s *script.Script, args []string) (pages []socket.Page, err error) {
	files, failures := make(map[string]string), make(map[string]error)
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		if of, ok := strings.CutSuffix(name, "-error"); ok {
			failures[of] = errors.New(value)
		} else {
			files[name] = s.ReadFile(value)
		}
	}
	var status answer.ProxyStatus
	var service table.ServiceView
	var step keep.DiffStep
	var entries []answer.HistoryEntry
	for name, object := range map[string]any{
		"status": &status, "services": &service, "diff": &step, "history": &entries,
	} {
		err = errors.Join(err, yaml.UnmarshalStrict([]byte(files[name]), object))
	}
	if _, ok := files["status"]; ok {
		pages = append(pages, answer.Status.AnsweredBy(answered[struct{}](&status, nil)))
	}
	if _, ok := files["services"]; ok {
		pages = append(pages, answer.Services.AnsweredBy(answered[cluster.ServiceName](&service, failures["services"])))
	}
	if _, ok := files["diff"]; ok {
		pages = append(pages, answer.Diff.AnsweredBy(answered[struct{}](&step, failures["diff"])))
	}
	if _, ok := files["history"]; ok {
		pages = append(pages, answer.History.AnsweredBy(
			func(_ context.Context, _ history.Query, yield func(*answer.HistoryEntry) error) error {
				for i := range entries {
					e := &entries[i]
					e.Subject, e.Text = e.Entry.Subject(), e.Entry.Text()
					if err := yield(e); err != nil {
						return err
					}
				}
				return nil
			}))
	}
	if failures["explain"] != nil {
		failed := answered[explain.Query, explain.Desired](nil, failures["explain"])
		pages = append(pages, answer.Explain.AnsweredBy(failed))
	}
	return pages, err
}

// answered returns a function that answers with a value, unless it is nil, and
// then with an error.
func answered[Q, A any](value *A, err error) socket.Answer[Q, A] {
	return func(_ context.Context, _ Q, yield func(*A) error) error {
		if value == nil {
			return err
		}
		return errors.Join(yield(value), err)
	}
}
