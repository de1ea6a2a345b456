package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
)

// concurrent is the number of nodes on which a command runs at a time.
const concurrent = 10

// runOne runs a command in one pod, with the standard streams of the plugin,
// and returns its exit code.
func (k kubectl) runOne(ctx context.Context, p pod, command []string, stdout, stderr io.Writer) int {
	s := streams{stdout: stdout, stderr: stderr}
	if isTerminal() {
		s.stdin = os.Stdin
	}
	r := k.exec(ctx, p, s, command)
	if r.problem != "" {
		fmt.Fprintf(stderr, "kubectl nftproxy: node %s: %s\n", p.node, r.problem)
	}
	return r.code
}

// maxOutput is the number of bytes of the output of a node that are kept. The
// list of 10,000 Services in JSON has about 10 MB.
const maxOutput = 32 << 20

var errOutput = fmt.Errorf("the output is larger than %d MB and was cut", maxOutput>>20)

// buffer keeps output up to maxOutput. More is an error, which ends kubectl.
type buffer struct {
	data []byte
	cut  bool
}

// Write implements io.Writer.
func (b *buffer) Write(p []byte) (int, error) {
	n := min(len(p), maxOutput-len(b.data))
	b.data = append(b.data, p[:n]...)
	if n < len(p) {
		b.cut = true
		return n, errOutput
	}
	return n, nil
}

// answer is the answer of a node.
type answer struct {
	result
	stdout, stderr buffer
}

// runAll runs a command in several pods, prints the answers in the order of the
// pods, and returns the highest exit code.
func (k kubectl) runAll(ctx context.Context, pods []pod, a arguments, stdout, stderr io.Writer) int {
	command := a.command
	summary := a.summary()
	if summary != nil {
		command = append(slices.Clone(command), "--output=json")
	}
	if command[0] == "top" { // it would repeat its output
		command = append(slices.Clone(command), "--once")
	}
	answers := make([]answer, len(pods))
	var running sync.WaitGroup
	slots := make(chan struct{}, concurrent)
	for i, p := range pods {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := a.withTimeout(ctx)
			defer cancel()
			s := streams{stdout: &answers[i].stdout, stderr: &answers[i].stderr}
			answers[i].result = k.exec(ctx, p, s, command)
			if answers[i].stdout.cut {
				answers[i].result = result{exitUnreachable, fmt.Sprintf("pod %s: %v", p.name, errOutput)}
			}
		})
	}
	running.Wait()
	worst := 0
	for i := range answers {
		worst = max(worst, answers[i].code)
	}
	switch first := a.table(); {
	case summary != nil:
		summary(stdout, pods, answers, a.format() == "wide")
	case first == "" || !printTables(stdout, first, pods, answers) && !printLines(stdout, pods, answers):
		printAnswers(stdout, stderr, a.format(), pods, answers)
	}
	return worst
}

// printAnswers prints the answers of nodes in the format of the flag --output.
// YAML and JSON are one object with a field for each node; the answer of a node
// on which the command failed is {"error": REASON}.
func printAnswers(stdout, stderr io.Writer, format string, pods []pod, answers []answer) {
	switch format {
	case "json":
		printJSON(stdout, pods, answers)
	case "yaml":
		printYAML(stdout, pods, answers)
	case "name":
		printNames(stdout, stderr, pods, answers)
	default:
		printText(stdout, stderr, pods, answers)
	}
}

// printNames prints the lines of all answers once.
func printNames(stdout, stderr io.Writer, pods []pod, answers []answer) {
	var names []string
	for i := range answers {
		names = append(names, strings.Fields(string(answers[i].stdout.data))...)
		if a := &answers[i]; a.problem != "" || len(a.stderr.data) > 0 {
			fmt.Fprintf(stderr, "kubectl nftproxy: node %s: %s\n", pods[i].node, a.failure("a list of names"))
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		fmt.Fprintln(stdout, name)
	}
}

// printText prints equal answers once, with the names of their nodes.
func printText(stdout, stderr io.Writer, pods []pod, answers []answer) {
	printed := make([]bool, len(answers))
	for i := range answers {
		if printed[i] {
			continue
		}
		a, nodes := &answers[i], pods[i].node
		for j := i + 1; j < len(answers); j++ {
			if a.equals(&answers[j]) {
				printed[j], nodes = true, nodes+", "+pods[j].node
			}
		}
		if i > 0 {
			fmt.Fprintln(stdout)
		}
		fmt.Fprintln(stdout, "NODE", nodes)
		stdout.Write(a.stdout.data)
		stderr.Write(a.stderr.data)
		if a.problem != "" {
			fmt.Fprintf(stderr, "kubectl nftproxy: node %s: %s\n", nodes, a.problem)
		}
	}
}

// equals reports whether two nodes gave the same answer.
func (a *answer) equals(o *answer) bool {
	return a.result == o.result &&
		bytes.Equal(a.stdout.data, o.stdout.data) && bytes.Equal(a.stderr.data, o.stderr.data)
}

// failure returns the reason why a node has no answer in the format of the flag
// --output.
func (a *answer) failure(format string) string {
	return cmp.Or(a.problem, oneLine(string(a.stderr.data)), "the answer is not "+format)
}

func printJSON(stdout io.Writer, pods []pod, answers []answer) {
	object := make(map[string]any, len(pods))
	for i := range answers {
		a := &answers[i]
		object[pods[i].node] = json.RawMessage(a.stdout.data)
		if !json.Valid(a.stdout.data) {
			object[pods[i].node] = map[string]string{"error": a.failure("JSON")}
		}
	}
	encoder := json.NewEncoder(stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	encoder.Encode(object) // all values are valid
}

func printYAML(stdout io.Writer, pods []pod, answers []answer) {
	for i := range answers {
		text := strings.TrimSuffix(string(answers[i].stdout.data), "\n")
		if text == "" || answers[i].problem != "" {
			text = fmt.Sprintf("error: %q", answers[i].failure("YAML"))
		}
		fmt.Fprintf(stdout, "%s:\n  %s\n", pods[i].node, strings.ReplaceAll(text, "\n", "\n  "))
	}
}
