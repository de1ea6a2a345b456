package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/script"
)

// The commands of scripts start demos and wait until they print a text, until
// files exist or until a number of kube-proxies runs; end checks the exit code,
// the standard error, and that nothing remains. Other commands check functions.
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Setup: func(e *script.Env) (map[string]script.Command, error) {
		var p *process
		must := func(ok bool, what ...string) error {
			if !ok {
				return fmt.Errorf("got no %q", what)
			}
			return nil
		}
		named := func(text string) string { return strings.ReplaceAll(text, "NAME", p.name) }
		stray := func() string { return "/run/nftproxy-" + p.name + "/stray.yaml" }
		return script.Steps(map[string]any{
			"start":      func(kubeProxy string, flags ...string) { p = start(e.T, newName(), kubeProxy, flags...) },
			"start-same": func(kubeProxy string) { p = start(e.T, p.name, kubeProxy) },
			"again": func() string {
				second := start(e.T, p.name, kubeProxyProgram)
				<-second.ended
				text := strings.TrimSuffix(strings.TrimSpace(second.read("stderr")), " "+p.name)
				return text[strings.LastIndex(text, ": ")+2:]
			},
			"await": func(text string) error {
				return must(p.await(func() bool { return strings.Contains(p.read("stdout"), named(text)) }), text)
			},
			"await-file": func(file string) error {
				return must(p.await(func() bool { return len(matches(named(file))) > 0 }), file)
			},
			"await-proxies": func(n int) error {
				return must(p.await(func() bool { return len(p.kubeProxies()) == n }), "such number of proxies")
			},
			"proxies": func() int { return len(p.kubeProxies()) },
			"signal": func(name string, times int) {
				signals := map[string]os.Signal{"INT": os.Interrupt, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP,
					"KILL": os.Kill}
				for range times {
					p.cmd.Process.Signal(signals[name])
					time.Sleep(time.Millisecond)
				}
			},
			"end": func(code string, text ...string) error { return p.end(code, strings.Join(text, " ")) },
			"printed": func(texts ...string) error {
				missing := func(text string) bool { return !strings.Contains(p.read("stdout"), text) }
				return must(!slices.ContainsFunc(texts, missing), texts...)
			},
			"stray":        func() error { return os.WriteFile(stray(), nil, 0o644) },
			"stray-exists": func() error { return must(len(matches(stray())) > 0, stray()) },
			"call":         checkCall, "event": checkEvent,
		}), nil
	}})
}

func okIf(ok bool) string {
	if ok {
		return "ok"
	}
	return "not ok"
}

// countsOf parses "a=1,b=2".
func countsOf(text string) counts {
	all := counts{}
	for part := range strings.SplitSeq(text, ",") {
		if name, n, ok := strings.Cut(part, "="); ok {
			all[name], _ = strconv.Atoi(n)
		}
	}
	return all
}

func checkCall(args ...string) string {
	c := parseCall([]string{"client", "ClusterIP", "tcp", args[0], args[1]})
	got := tally{countsOf(args[2]), countsOf(args[3])}
	return okIf(c.check("shop/web", [2]tally{got, got}) == nil)
}

func checkEvent(args ...string) string {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	e := &event{done: at(10), after: [2][]string{strings.Split(args[1], ",")}}
	if args[0] != "" {
		e.before[0] = strings.Split(args[0], ",")
	}
	var attempts []attempt
	then := slices.Repeat(strings.Split(args[3], ","), settled+1)
	for i, answer := range append(strings.Split(args[2], ","), then...) {
		if answer != "" {
			attempts = append(attempts, attempt{start: at(10 + i), end: at(11 + i), answer: answer})
		}
	}
	since, seen := e.seenBy(0, attempts)
	if !seen {
		return "not in force"
	}
	e.inForce[0] = since
	_, _, err := e.check(0, attempts)
	return fmt.Sprintf("in force at %d, %s", since.UnixMilli(), okIf(err == nil))
}
