package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
)

// kubectl runs the program kubectl.
type kubectl struct {
	program string
	flags   []string // of every call
}

func newKubectl(a arguments) (kubectl, error) {
	program, err := exec.LookPath("kubectl")
	if err != nil {
		return kubectl{}, errors.New("the program kubectl is not on the PATH")
	}
	return kubectl{program, append(a.connection, "--namespace="+a.namespace)}, nil
}

func (k kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, k.program, append(k.flags[:len(k.flags):len(k.flags)], args...)...)
}

// output returns the standard output of kubectl.
func (k kubectl) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := k.command(ctx, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n") // without a cluster, the last one has the reason
	if text := oneLine(lines[len(lines)-1]); err != nil && text != "" {
		err = errors.New(text)
	}
	return out, err
}

// pods returns the pods of nftproxy, one for each node.
func (k kubectl) pods(ctx context.Context, selector string) ([]pod, error) {
	out, err := k.output(ctx, "get", "pods", "--selector="+selector, "--output=json")
	if err != nil {
		return nil, fmt.Errorf("list the pods: %w", err)
	}
	return parsePods(out)
}

// find returns the node and the address of a pod of the cluster.
func (k kubectl) find(ctx context.Context, reference string) (node, address string, err error) {
	full, _, _ := strings.Cut(reference, ":")
	namespace, name, _ := strings.Cut(strings.TrimPrefix(full, podPrefix), "/")
	out, err := k.output(ctx, "get", "pod", name, "--namespace="+namespace,
		"--output=jsonpath={.spec.nodeName} {.status.podIP}")
	words := strings.Fields(string(out))
	switch {
	case err != nil:
		return "", "", fmt.Errorf("find %s: %w", full, err)
	case len(words) < 2:
		return "", "", fmt.Errorf("%s has no address yet", full)
	}
	return words[0], words[1], nil
}

// streams are the standard streams of a command in a pod.
type streams struct {
	stdin          io.Reader // nil unless stdin and stdout are a terminal
	stdout, stderr io.Writer
}

// result is the result of a command in a pod.
type result struct {
	code    int    // exit code of the command
	problem string // the reason why it did not run, "" if it ran
}

// terminated matches the line that kubectl adds if the exit code of a command
// is not 0.
var terminated = regexp.MustCompile(`(?m)^command terminated with exit code \d+\n?`)

// noProgram matches the error of a container runtime (runc or crun) that found
// no program.
var noProgram = regexp.MustCompile(`executable file .*not found`)

// exec runs nftproxy in a pod.
func (k kubectl) exec(ctx context.Context, p pod, s streams, command []string) result {
	if p.problem != "" {
		return result{exitUnreachable, p.problem}
	}
	args := []string{"exec", p.name, "--container=" + p.container}
	if s.stdin != nil {
		args = append(args, "--stdin", "--tty")
	}
	cmd := k.command(ctx, append(append(args, "--", "nftproxy"), command...)...)
	var stderr buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.stdin, s.stdout, &stderr
	cmd.WaitDelay = time.Second // after the end of the context
	err := cmd.Run()
	text := string(stderr.data)
	var exit *exec.ExitError
	var problem string
	switch {
	case err != nil && ctx.Err() != nil:
		problem = fmt.Sprintf("pod %s: %v", p.name, context.Cause(ctx))
	case stderr.cut:
		problem = fmt.Sprintf("pod %s: %v", p.name, errOutput)
	case err != nil && !errors.As(err, &exit):
		problem = err.Error()
	case noProgram.MatchString(text):
		problem = fmt.Sprintf("pod %s has no program nftproxy: its image %s is not the image of nftproxy", p.name,
			p.image)
	case err != nil && !terminated.MatchString(text):
		problem = fmt.Sprintf("pod %s: %s", p.name, oneLine(text))
	default:
		io.WriteString(s.stderr, terminated.ReplaceAllString(text, ""))
		return result{code: cmd.ProcessState.ExitCode()}
	}
	return result{exitUnreachable, problem}
}

// oneLine joins the lines of a text.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// isTerminal reports whether the standard streams are a terminal. nftproxy then
// gets one, too, so that an interrupt reaches it.
func isTerminal() bool {
	return term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}

// pod is a pod of nftproxy.
type pod struct {
	node, name, container, image string
	// problem is the reason why no command can run in the pod, "" if one can.
	problem string
}

// podList is the answer of `kubectl get pods -o json`, with the fields used
// here. The names are as in the Kubernetes API.
type podList struct {
	Items []struct {
		Metadata struct {
			Name              string
			DeletionTimestamp string
		}
		Spec struct {
			NodeName   string
			Containers []struct{ Name, Image string }
		}
		Status struct {
			Phase, Reason     string
			ContainerStatuses []struct {
				Name  string
				State struct {
					Running             *struct{}
					Waiting, Terminated *struct{ Reason string }
				}
			}
		}
	}
}

// parsePods returns the pods in order of their nodes, one for each node. During
// an update, a node can have two: one without a problem has priority.
func parsePods(data []byte) ([]pod, error) {
	var list podList
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read the pods: %w", err)
	}
	var pods []pod
	for i := range list.Items {
		if p := list.pod(i); p.node != "" {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b pod) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.problem, b.problem), cmp.Compare(a.name, b.name))
	})
	return slices.CompactFunc(pods, func(a, b pod) bool { return a.node == b.node }), nil
}

// pod returns a pod of the list. Of several containers, it chooses the
// proxy by its name.
func (l *podList) pod(i int) pod {
	item := &l.Items[i]
	p := pod{node: item.Spec.NodeName, name: item.Metadata.Name}
	for _, c := range item.Spec.Containers {
		if p.container == "" || c.Name == "kube-proxy" || c.Name == "nftproxy" {
			p.container, p.image = c.Name, c.Image
		}
	}
	state := cmp.Or(item.Status.Reason, item.Status.Phase)
	for _, c := range item.Status.ContainerStatuses {
		switch {
		case c.Name != p.container:
		case c.State.Running != nil:
			state = ""
		case c.State.Waiting != nil:
			state = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			state = c.State.Terminated.Reason
		}
	}
	if state != "" {
		p.problem = fmt.Sprintf("pod %s is not running: %s", p.name, state)
	} else if item.Metadata.DeletionTimestamp != "" {
		p.problem = fmt.Sprintf("pod %s is being deleted", p.name)
	}
	return p
}

// choose returns the pods in which the command runs.
func choose(a arguments, pods []pod) ([]pod, error) {
	where := fmt.Sprintf("pods with label %s in namespace %s", a.selector, a.namespace)
	switch {
	case len(pods) == 0:
		return nil, fmt.Errorf("no %s: set --namespace and --selector of nftproxy", where)
	case a.allNodes && len(a.nodes) > 0:
		return nil, errors.New("--node and --all-nodes exclude each other")
	case len(a.nodes) > 0:
		return named(a.nodes, pods, where)
	case a.manyNodes() || len(pods) == 1:
		return pods, nil
	case a.isHelp():
		return []pod{slices.MinFunc(pods, func(a, b pod) int { return cmp.Compare(a.problem, b.problem) })}, nil
	}
	return nil, fmt.Errorf("%s runs on one node: set --node to one of %s, or --all-nodes", a.command[0],
		nodeNames(pods))
}

// named returns the pods of nodes.
func named(nodes []string, pods []pod, where string) ([]pod, error) {
	var chosen []pod
	for _, node := range nodes {
		i := slices.IndexFunc(pods, func(p pod) bool { return p.node == node })
		if i < 0 {
			return nil, fmt.Errorf("node %q has no %s; nodes with them: %s", node, where, nodeNames(pods))
		}
		chosen = append(chosen, pods[i])
	}
	return chosen, nil
}

// nodeNames returns the names of the first nodes.
func nodeNames(pods []pod) string {
	const most = 10
	var names []string
	for _, p := range pods[:min(len(pods), most)] {
		names = append(names, p.node)
	}
	if len(pods) > most {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}
