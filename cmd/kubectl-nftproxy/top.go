package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/nftproxy/nftproxy/cmd/top"
)

// printTop prints the connections of all nodes as one table, and then the
// problems of nodes. The answers are JSON.
func printTop(stdout io.Writer, pods []pod, answers []answer, wide bool) {
	nodes := make(map[string]*top.Snapshot)
	problems := ""
	for i := range answers {
		s := new(top.Snapshot)
		if err := json.Unmarshal(answers[i].stdout.data, s); err != nil {
			problems += fmt.Sprintf("\n%s: %s", pods[i].node, answers[i].failure("JSON"))
			continue
		}
		for i := range s.ServicePorts {
			s.ServicePorts[i].Name = oneLine(s.ServicePorts[i].Name)
		}
		nodes[pods[i].node] = s
	}
	top.Layout{Nodes: true, Wide: wide}.Print(stdout, top.Merge(nodes))
	if problems != "" {
		fmt.Fprintln(stdout, problems)
	}
}
