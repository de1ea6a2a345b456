package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/nftproxy/nftproxy/cmd/findings"
	"github.com/nftproxy/nftproxy/cmd/top"
)

// merge prints the answers of all nodes, which are JSON, with print, and then
// the problems of nodes.
func merge[T any](stdout io.Writer, pods []pod, answers []answer, print func(map[string]*T)) {
	nodes, problems := make(map[string]*T), ""
	for i := range answers {
		value := new(T)
		if err := json.Unmarshal(answers[i].stdout.data, value); err != nil {
			problems += fmt.Sprintf("\n%s: %s", pods[i].node, answers[i].failure("JSON"))
			continue
		}
		nodes[pods[i].node] = value
	}
	print(nodes)
	if problems != "" {
		fmt.Fprintln(stdout, problems)
	}
}

// printFindings prints each finding of all nodes once.
func printFindings(stdout io.Writer, pods []pod, answers []answer, wide bool) {
	merge(stdout, pods, answers, func(nodes map[string]*findings.Report) { findings.Merge(nodes).Print(stdout, wide) })
}

// printTop prints the connections of all nodes as one table.
func printTop(stdout io.Writer, pods []pod, answers []answer, wide bool) {
	merge(stdout, pods, answers, func(nodes map[string]*top.Snapshot) {
		for _, s := range nodes {
			for i := range s.ServicePorts {
				s.ServicePorts[i].Name = oneLine(s.ServicePorts[i].Name)
			}
		}
		top.Layout{Nodes: true, Wide: wide}.Print(stdout, top.Merge(nodes))
	})
}
