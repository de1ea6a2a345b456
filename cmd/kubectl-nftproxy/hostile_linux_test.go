package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// fakeKubectl puts a kubectl on the PATH that lists two nodes, a and b. In the
// pod of a it runs a command of the shell, in the pod of b another one, or it
// prints {}.
func fakeKubectl(t *testing.T, inPodA string, inPodB ...string) {
	t.Helper()
	pod := `{"metadata": {"name": "pod-%s"}, "spec": {"nodeName": "%[1]s", "containers": [{"name": "kube-proxy"}]}}`
	script := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in\n*get*pods*) echo '{\"items\": [%s, %s]}';;\n*pod-a*) %s;;\n"+
		"*) %s;;\nesac\n", fmt.Sprintf(pod, "a"), fmt.Sprintf(pod, "b"), inPodA, append(inPodB, "echo '{}'")[0])
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// ask runs the plugin with a command line.
func ask(t *testing.T, commandLine string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errors bytes.Buffer
	code = plugin(t.Context(), strings.Fields("kubectl-nftproxy "+commandLine), &out, &errors)
	return out.String(), errors.String(), code
}

// A node that answers too much is named, and the others answer.
func TestLargeAnswer(t *testing.T) {
	const problem = "pod pod-a: the output is larger than 32 MB and was cut"
	for _, stream := range []string{"", ">&2"} {
		fakeKubectl(t, "head -c 33M /dev/zero | tr '\\0' x "+stream)
		stdout, stderr, code := ask(t, "services --all-nodes")
		if want := "kubectl nftproxy: node a: " + problem + "\n"; stderr != want || code != exitUnreachable {
			t.Errorf("%q: got error %.200q and exit code %d, want %q", stream, stderr, code, want)
		}
		if len(stdout) > maxOutput+1000 || !strings.HasSuffix(stdout, "NODE b\n{}\n") {
			t.Errorf("%q: got %d bytes, want at most %d and the output of node b", stream, len(stdout), maxOutput)
		}
		for format, want := range map[string]string{
			"json": "{\n  \"a\": {\n    \"error\": \"" + problem + "\"\n  },\n  \"b\": {}\n}\n",
			"yaml": "a:\n  error: \"" + problem + "\"\nb:\n  {}\n",
		} {
			if stdout, _, _ := ask(t, "services --all-nodes -o "+format); stdout != want {
				t.Errorf("%q: got %.200q, want %q", stream, stdout, want)
			}
		}
	}
}

// A node whose answer is not in the format of the flag has an error that is not
// empty.
func TestAnswerInOtherFormat(t *testing.T) {
	for inPodA, problem := range map[string]string{
		"echo no": "the answer is not JSON", "true": "the answer is not JSON", "echo busy >&2": "busy",
	} {
		fakeKubectl(t, inPodA)
		want := fmt.Sprintf("{\n  \"a\": {\n    \"error\": %q\n  },\n  \"b\": {}\n}\n", problem)
		if stdout, _, _ := ask(t, "status --all-nodes -o json"); stdout != want {
			t.Errorf("%s: got %s, want %s", inPodA, stdout, want)
		}
	}
}

// No control character of an answer reaches the terminal.
func TestControlCharacters(t *testing.T) {
	fakeKubectl(t, `printf '"\033[31m\302\233\342\200\256\r"'; printf '\033]0;x\007' >&2`)
	for _, commandLine := range []string{
		"services --all-nodes", "services --node a", "status", "services --all-nodes -o json",
		"services --all-nodes -o yaml",
		"__complete --node=a x",
	} {
		stdout, stderr, _ := ask(t, commandLine)
		for _, r := range stdout + stderr {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%s: got %q, want no character %q", commandLine, stdout+stderr, r)
				break
			}
		}
	}
}

// The changes of all nodes are one table, in the order of time.
func TestHistory(t *testing.T) {
	const first = `{"time": "2026-01-01T12:00:00+01:00", "family": "IPv4", "kind": "change", "cause": "change", ` +
		`"seconds": 0.00123, "subject": "shop/web:http", "text": "endpoints +10.244.1.6:8080 (2 now)"}`
	const last = `{"time": "2026-01-01T11:02:00Z", "family": "IPv6", "kind": "change", "cause": "ejection", ` +
		`"subject": "shop/web:http", "text": "ejected [fd00::1]:80 (2 left)"}`
	fakeKubectl(t, "echo '["+last+"]'", "echo '["+first+", "+strings.ReplaceAll(first, "12:00", "12:03")+"]'")
	stdout, stderr, code := ask(t, "history web -n shop")
	const want = `TIME                  NODE  FAMILY  CAUSE     TOOK    SUBJECT        CHANGE
2026-01-01T11:00:00Z  b     IPv4    change    1.23ms  shop/web:http  endpoints +10.244.1.6:8080 (2 now)
2026-01-01T11:02:00Z  a     IPv6    ejection  -       shop/web:http  ejected [fd00::1]:80 (2 left)
2026-01-01T11:03:00Z  b     IPv4    change    1.23ms  shop/web:http  endpoints +10.244.1.6:8080 (2 now)
`
	if stdout != want || stderr != "" || code != 0 {
		t.Errorf("got exit code %d, error %q and\n%s\nwant\n%s", code, stderr, stdout, want)
	}
	fakeKubectl(t, "echo '[]'", "echo no")
	const problem = "No changes\n\nb: the answer is not JSON\n"
	if stdout, _, _ := ask(t, "history"); stdout != problem {
		t.Errorf("got %q, want %q", stdout, problem)
	}
	const watch = "kubectl nftproxy: --watch needs one node: give it as --node NODE\n"
	if _, stderr, code := ask(t, "history -w"); stderr != watch || code != exitMisuse {
		t.Errorf("got exit code %d and %q, want %q", code, stderr, watch)
	}
}

// top has one table of all nodes, in the order that they used. On one node it
// has no time limit.
func TestTop(t *testing.T) {
	fakeKubectl(t, `echo '{"time": "2026-01-01T12:00:07Z", "sortedBy": "new", "servicePorts": [`+
		`{"servicePort": "shop/web", "connections": 3, "newPerSecond": 1},`+
		`{"servicePort": "x\\ny", "newPerSecond": 5}]}'`, "echo no")
	const want = `12:00:07  service ports: 2, connections: 0, new/s: 0.0, replies/s: 0.0, unanswered: 0
SERVICE PORT  NODE  CONNECTIONS  NEW/S  REPLIES/S  UNANSWERED  CHANGED  EJECTED
x y           a     0            5.0    0.0        0           -        -
shop/web      a     3            1.0    0.0        0           -        -

b: the answer is not JSON
`
	if stdout, _, _ := ask(t, "top --sort new"); stdout != want {
		t.Errorf("got %s\nwant %s", stdout, want)
	}
	for commandLine, limited := range map[string]bool{
		"top": true, "top --node a": false, "top --node a,b": true,
		"history --node a": true, "history -w --node a": false,
	} {
		a, err := parse(strings.Fields(commandLine))
		ctx, cancel := a.withTimeout(t.Context())
		defer cancel()
		if _, got := ctx.Deadline(); err != nil || got != limited {
			t.Errorf("%s: got a limit %v, %v, want %v", commandLine, got, err, limited)
		}
	}
}
