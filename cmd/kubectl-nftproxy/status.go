package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// status is the answer of `nftproxy status -o json`, with the fields used here.
type status struct {
	State    string
	Problems []string
	Proxy    struct {
		Version       string
		Time, Started time.Time
		Families      []struct {
			Services, Endpoints int
			LastWrite           struct{ Ended time.Time }
		}
	}
}

// printSummary prints a table with a row for each node, and then their
// problems. The answers are JSON.
func printSummary(stdout io.Writer, pods []pod, answers []answer, _ bool) {
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tSTATE\tVERSION\tAGE\tLAST WRITE\tSERVICES\tENDPOINTS")
	var problems []string
	for i := range answers {
		var s status
		if err := json.Unmarshal(answers[i].stdout.data, &s); err != nil {
			s = status{State: "unreachable", Problems: []string{answers[i].failure("JSON")}}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", pods[i].node, oneLine(s.State), strings.Join(s.columns(), "\t"))
		for _, p := range s.Problems {
			problems = append(problems, fmt.Sprintf("%s: %s\n", pods[i].node, oneLine(p)))
		}
	}
	table.Flush()
	if problems != nil {
		fmt.Fprintf(stdout, "\n%s", strings.Join(problems, ""))
	}
}

// columns returns the version, the age, the time since the last sync that wrote
// something, and the numbers of Services and endpoints, of each family.
func (s *status) columns() []string {
	p := &s.Proxy
	if p.Version == "" {
		return []string{"-", "-", "-", "-", "-"}
	}
	var last time.Time
	var services, endpoints []string
	for _, f := range p.Families {
		if f.LastWrite.Ended.After(last) {
			last = f.LastWrite.Ended
		}
		services = append(services, fmt.Sprint(f.Services))
		endpoints = append(endpoints, fmt.Sprint(f.Endpoints))
	}
	write := "none"
	if !last.IsZero() {
		write = duration.HumanDuration(p.Time.Sub(last)) + " ago"
	}
	return []string{oneLine(p.Version), duration.HumanDuration(p.Time.Sub(p.Started)), write,
		strings.Join(services, "/"), strings.Join(endpoints, "/")}
}
