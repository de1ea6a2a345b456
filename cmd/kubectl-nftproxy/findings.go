package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/nftproxy/nftproxy/cmd/findings"
)

// printFindings prints each finding of all nodes once, and then the problems of
// nodes. The answers are JSON.
func printFindings(stdout io.Writer, pods []pod, answers []answer, all bool) {
	nodes := make(map[string]*findings.Report)
	problems := ""
	for i := range answers {
		r := new(findings.Report)
		if err := json.Unmarshal(answers[i].stdout.data, r); err != nil {
			problems += fmt.Sprintf("\n%s: %s", pods[i].node, answers[i].failure("JSON"))
			continue
		}
		nodes[pods[i].node] = r
	}
	findings.Merge(nodes).Print(stdout, all)
	if problems != "" {
		fmt.Fprintln(stdout, problems)
	}
}
