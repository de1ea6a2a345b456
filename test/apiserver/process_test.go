package apiserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPrivileges shows that the API server refuses no request of the subject
// with the role of deploy/.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	w, web, p := newServedWorld(t)
	w.startingEvent()
	p.kill()
	p.startSynced()
	web.setEndpoints("a2")
	web.servedBy("a2")
	requests, err := w.APIServer.Requests()
	w.must(err)
	used := map[string]int{}
	for _, r := range requests {
		used[r.Verb+" "+r.Object.Resource]++
		if !r.Allowed() {
			t.Errorf("refused: %v", r)
		}
	}
	for _, need := range []string{
		"watch services", "watch endpointslices", "watch nodes", "watch servicecidrs", "create events",
	} {
		if used[need] == 0 {
			t.Errorf("requests: got %v, want %s", used, need)
		}
	}
}

// TestEvents shows the subject's event.
func TestEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subject().startSynced()
	w.startingEvent()
}

// startingEvent waits for the event of the proxy's start.
func (w *world) startingEvent() {
	w.t.Helper()
	eventually(w.t, "event", func() error {
		list, err := w.Admin().EventsV1().Events("").List(w.ctx(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == "Starting" && e.Type == "Normal" && e.Action == "StartKubeProxy" &&
				e.ReportingController == "kube-proxy" && e.Namespace == metav1.NamespaceDefault &&
				e.Regarding.Kind == "Node" && e.Regarding.Name == w.Node1.Name {
				return nil
			}
		}
		return fmt.Errorf("got %+v, want an event Starting", list.Items)
	})
}

// TestConfigChange shows that the subject exits, and leaves the rules, after
// a change of the configuration file.
func TestConfigChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.createService("web", "a1 b1")
	type change struct {
		name   string
		change func(path, text string) error
	}
	changes := []change{
		{"written", func(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }},
	}
	if subjectName() == product { // kube-proxy watches the file's inode
		changes = append(changes,
			change{"replaced", func(path, text string) error {
				if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
					return err
				}
				return os.Rename(path+".new", path)
			}},
			change{"volume of a ConfigMap", replaceVolume},
		)
	}
	for _, change := range changes {
		t.Run(change.name, func(t *testing.T) {
			text := w.config("hostnameOverride: node1")
			path := w.writeVolume(text)
			p := w.bareProxy(subjectName(), "--config="+path)
			p.startSynced()
			web.servedBy("a1 b1")
			w.must(change.change(path, text+"\n# changed\n"))
			if code := p.awaitEnd(); code != 1 {
				t.Errorf("got exit code %d, want 1", code)
			}
			if log := p.process.Log(); !strings.Contains(log, "configuration file") {
				t.Errorf("log: got\n%s\nwant a line about the configuration file", log)
			}
			web.servedBy("a1 b1")
		})
	}
}

// TestConfigChangeRefused shows that nftproxy logs an invalid change of the
// configuration file and keeps its configuration: a mistake in a ConfigMap
// reaches all nodes at once. kube-proxy exits.
func TestConfigChangeRefused(t *testing.T) {
	t.Parallel()
	if subjectName() != product {
		return
	}
	w := newWorld(t)
	web := w.createService("web", "a1 b1")
	text := w.config("hostnameOverride: node1")
	path := w.writeVolume(text)
	p := w.bareProxy(product, "--config="+path)
	p.startSynced()
	for _, tc := range []struct{ text, want string }{
		{strings.Replace(text, "mode: nftables", "mode: iptables", 1), "mode: \\\"iptables\\\" is not supported"},
		{text + "nftables: {masqueradeBit: 32}\n", "nftables.masqueradeBit: 32 is not in the range"},
		{text + "}", "cannot be decoded"},
	} {
		w.must(replaceVolume(path, tc.text))
		p.awaitLog("keeping the current configuration\" err=\"" + path + ": " + tc.want)
	}
	web.setEndpoints("a2")
	web.servedBy("a2")
	p.awaitHealth()
	w.must(replaceVolume(path, text+"configSyncPeriod: 5m\n"))
	if code := p.awaitEnd(); code != 1 {
		t.Errorf("got exit code %d, want 1", code)
	}
	web.servedBy("a2")
}

// writeVolume writes a configuration file behind two symbolic links, as the
// kubelet does with a ConfigMap.
func (w *world) writeVolume(text string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "config.conf")
	w.must(os.Symlink("..data/config.conf", path))
	w.must(replaceVolume(path, text))
	return path
}

// replaceVolume changes a file of writeVolume: the first link leads to a new
// folder.
func replaceVolume(path, text string) error {
	volume := filepath.Dir(path)
	folder, err := os.MkdirTemp(volume, "..")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "config.conf"), []byte(text), 0o644); err != nil {
		return err
	}
	link := filepath.Join(volume, "..data")
	if err := os.Symlink(filepath.Base(folder), link+"_tmp"); err != nil {
		return err
	}
	return os.Rename(link+"_tmp", link)
}
