package main

import (
	"slices"
	"strings"
	"testing"
)

// During an update, node a has an old pod that is being deleted and a new one,
// and node b has a pod whose container waits. A pod without a node is ignored.
func TestPods(t *testing.T) {
	got, err := parsePods([]byte(`{"items": [
{"metadata": {"name": "b1"}, "spec": {"nodeName": "b", "containers": [{"name": "nftproxy", "image": "i"}]},
 "status": {"phase": "Running", "containerStatuses": [
   {"name": "nftproxy", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}},
{"metadata": {"name": "a1", "deletionTimestamp": "2026-11-22T10:00:00Z"},
 "spec": {"nodeName": "a", "containers": [{"name": "kube-proxy"}]},
 "status": {"phase": "Running", "containerStatuses": [{"name": "kube-proxy", "state": {"running": {}}}]}},
{"metadata": {"name": "a2"},
 "spec": {"nodeName": "a", "containers": [{"name": "mesh"}, {"name": "kube-proxy"}, {"name": "log"}]},
 "status": {"phase": "Running", "containerStatuses": [
   {"name": "mesh", "state": {"terminated": {"reason": "Error"}}},
   {"name": "kube-proxy", "state": {"running": {"startedAt": "2026-11-22T10:00:00Z"}}}]}},
{"metadata": {"name": "c1"}, "spec": {"nodeName": "c", "containers": [{"name": "other"}]},
 "status": {"phase": "Failed", "reason": "Evicted"}},
{"metadata": {"name": "d1"}, "spec": {"containers": [{"name": "kube-proxy"}]}, "status": {"phase": "Pending"}}
]}`))
	want := []pod{
		{node: "a", name: "a2", container: "kube-proxy"},
		{node: "b", name: "b1", container: "nftproxy", image: "i", problem: "pod b1 is not running: CrashLoopBackOff"},
		{node: "c", name: "c1", container: "other", problem: "pod c1 is not running: Evicted"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// Help is the same on all nodes: it comes from a pod that runs.
func TestChooseHelp(t *testing.T) {
	pods := []pod{{node: "a", problem: "not running"}, {node: "b"}, {node: "c"}}
	for _, command := range []string{"help explain", "status --help", "explain -h"} {
		got, err := choose(arguments{command: strings.Fields(command)}, pods)
		if err != nil || !slices.Equal(got, pods[1:2]) {
			t.Errorf("%s: got %v, %v; want node b", command, got, err)
		}
	}
}

func TestChooseErrors(t *testing.T) {
	many := make([]pod, 12)
	for i := range many {
		many[i].node = string(rune('a' + i))
	}
	for _, tt := range []struct {
		a    arguments
		want string
	}{
		{arguments{}, "trace runs on one node: set --node to one of a, b, c, d, e, f, g, h, i, j, …, or --all-nodes"},
		{arguments{allNodes: true, nodes: []string{"a"}}, "--node and --all-nodes exclude each other"},
	} {
		tt.a.command = []string{"trace"}
		if _, err := choose(tt.a, many); err == nil || err.Error() != tt.want {
			t.Errorf("got error %v, want %s", err, tt.want)
		}
	}
}
