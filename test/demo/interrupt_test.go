package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// moment is when a tour is interrupted.
type moment struct {
	name  string
	await func(*demo)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// namespace waits until a namespace is there.
func namespace(name string) func(*demo) {
	return func(d *demo) {
		d.await("there is "+name, func() bool { return exists("/run/netns/" + d.name + "." + name) })
	}
}

// shown waits until a text is shown.
func shown(text string) func(*demo) { return func(d *demo) { d.awaitText(text) } }

// running waits until so many kube-proxy processes run.
func running(count int) func(*demo) {
	return func(d *demo) {
		d.await("kube-proxy runs", func() bool { return len(d.processes()) == count })
	}
}

// scaling waits until a Service is scaled.
func scaling(d *demo) {
	d.await("shop/web is scaled", func() bool {
		data, err := os.ReadFile(filepath.Join(d.folder(), "manifests", "shop-web-endpoints.yaml"))
		return err == nil && strings.Contains(string(data), "web-5")
	})
}

func moments() []moment {
	return []moment{
		{"the client is there", namespace("client")},
		{"node2 is there", namespace("node2")},
		{"the folder is there", func(d *demo) { d.await("the folder is there", func() bool { return exists(d.folder()) }) }},
		{"the last pod is there", namespace("toolbox")},
		{"one kube-proxy runs", running(1)},
		{"both run", running(2)},
		{"calls", shown("3. Who answers")},
		{"a stranger", shown("4. Who does not answer")},
		{"the stream begins", shown("5. Scaling under load")},
		{"scaling", scaling},
		{"a UDP flow", shown("6. A UDP client")},
		{"one kube-proxy is dead", func(d *demo) {
			shown("7. kube-proxy is killed")(d)
			running(1)(d)
		}},
		{"the rules are flushed", shown("nft flush ruleset")},
		{"nft runs", shown("9. The rules")},
	}
}

// A tour that is interrupted, whenever and however, leaves nothing behind, and says so.
func TestInterrupted(t *testing.T) {
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
	for i, m := range moments() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			d := start(t, newName(), kubeProxyProgram)
			m.await(d)
			d.send(signals[i%len(signals)])
			if code := d.exitCode(); code != exitInterrupted {
				t.Errorf("exit code %d", code)
			}
			if !strings.Contains(d.stderr.String(), "interrupted; everything is cleaned up") {
				t.Error("it does not say so")
			}
			d.expectNothingLeft()
		})
	}
}

// Whoever presses Ctrl-C more than once gets no less cleaned up.
func TestInterruptedTwice(t *testing.T) {
	t.Parallel()
	d := start(t, newName(), kubeProxyProgram)
	d.awaitText("5. Scaling under load")
	for range 20 {
		if d.cmd.Process.Signal(syscall.SIGINT) != nil {
			break // ended
		}
		time.Sleep(time.Millisecond)
	}
	if code := d.exitCode(); code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	d.expectNothingLeft()
}

// Right after the start, before it can catch signals, there is nothing to clean up either.
func TestInterruptedAtOnce(t *testing.T) {
	t.Parallel()
	for delay := range 10 {
		d := start(t, newName(), kubeProxyProgram)
		time.Sleep(time.Duration(delay) * time.Millisecond)
		d.send(syscall.SIGINT)
		<-d.ended
		d.expectNothingLeft()
	}
}

// A tour whose reader goes away ends, and leaves nothing behind.
func TestNobodyReads(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	d := startWith(t, newName(), kubeProxyProgram, writer)
	writer.Close()
	text := make([]byte, 10)
	if _, err := reader.Read(text); err != nil {
		t.Fatal(err)
	}
	reader.Close()
	if code := d.exitCode(); code != exitFailed || !strings.Contains(d.stderr.String(), "broken pipe") {
		t.Errorf("exit code %d", code)
	}
	d.expectNothingLeft()
}

// When a tour is killed its processes end, and the next tour takes away the rest.
func TestKilled(t *testing.T) {
	for _, m := range []moment{{"both run", running(2)}, {"scaling", scaling}} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			d := start(t, newName(), kubeProxyProgram)
			m.await(d)
			d.send(syscall.SIGKILL)
			<-d.ended
			for deadline := time.Now().Add(10 * time.Second); len(d.processes()) > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("still running: %v", d.processes())
				}
			}
			if len(d.leftovers()) == 0 {
				t.Error("nothing is left for the next tour to take away: the test shows nothing")
			}
			stray := filepath.Join(d.folder(), "manifests", "stray.yaml")
			if err := os.WriteFile(stray, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			next := start(t, d.name, kubeProxyProgram)
			next.awaitText("3. Who answers")
			if exists(stray) {
				t.Error("the next tour reads manifests of the killed one")
			}
			next.send(syscall.SIGINT)
			if code := next.exitCode(); code != exitInterrupted {
				t.Errorf("the next tour: exit code %d", code)
			}
			next.expectNothingLeft()
		})
	}
}
