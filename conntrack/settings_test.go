package conntrack

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// settingsRoot makes files of a kernel with four CPUs below a folder.
func settingsRoot(t *testing.T) (root string, read func(file string) string) {
	t.Helper()
	root = t.TempDir()
	for file, content := range map[string]string{
		sysctlDir + "/nf_conntrack_max":                     "262144\n",
		sysctlDir + "/nf_conntrack_tcp_timeout_established": "432000\n",
		sysctlDir + "/nf_conntrack_tcp_timeout_close_wait":  "60\n",
		sysctlDir + "/nf_conntrack_tcp_be_liberal":          "0\n",
		sysctlDir + "/nf_conntrack_udp_timeout":             "30\n",
		sysctlDir + "/nf_conntrack_udp_timeout_stream":      "120\n",
		hashSizeFile: "65536\n",
		cpusFile:     "0-2,5\n",
	} {
		file = filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root, func(file string) string {
		b, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
}

func TestSettings(t *testing.T) {
	for _, tc := range []struct {
		what     string
		settings Settings
		want     map[string]int // what is written, by the file's name
	}{
		{"nothing", Settings{}, nil},
		{"a minimum alone says nothing", Settings{Min: 1000000}, nil},
		{"for each CPU", Settings{MaxPerCore: 100000, Min: 131072}, map[string]int{"nf_conntrack_max": 400000, "hashsize": 100000}},
		{"the hash table is one too small", Settings{MaxPerCore: 65537}, map[string]int{"nf_conntrack_max": 262148, "hashsize": 65537}},
		{"fewer than there were", Settings{MaxPerCore: 32768, Min: 131072}, map[string]int{"nf_conntrack_max": 131072}},
		{"the minimum", Settings{MaxPerCore: 1, Min: 300000}, map[string]int{"nf_conntrack_max": 300000, "hashsize": 75000}},
		{"no more than 1 Mi for each CPU", Settings{MaxPerCore: 1 << 20}, map[string]int{"nf_conntrack_max": 1 << 20, "hashsize": 1 << 18}},
		{"that limit is also the minimum's", Settings{MaxPerCore: 1 << 20, Min: 1 << 21}, map[string]int{"nf_conntrack_max": 1 << 20, "hashsize": 1 << 18}},
		{"a minimum beyond it", Settings{MaxPerCore: 1, Min: 1 << 21}, map[string]int{"nf_conntrack_max": 1 << 21, "hashsize": 1 << 19}},
		{"all is right already", Settings{
			MaxPerCore: 65536, TCPEstablishedTimeout: 120 * time.Hour, TCPCloseWaitTimeout: time.Minute, UDPTimeout: 30 * time.Second, UDPStreamTimeout: 2 * time.Minute,
		}, nil},
		{"kube-proxy's defaults", Settings{MaxPerCore: 32768, Min: 131072, TCPEstablishedTimeout: 24 * time.Hour, TCPCloseWaitTimeout: time.Hour},
			map[string]int{"nf_conntrack_max": 131072, "nf_conntrack_tcp_timeout_established": 86400, "nf_conntrack_tcp_timeout_close_wait": 3600}},
		{"established", Settings{TCPEstablishedTimeout: time.Hour}, map[string]int{"nf_conntrack_tcp_timeout_established": 3600}},
		{"close wait", Settings{TCPCloseWaitTimeout: time.Hour}, map[string]int{"nf_conntrack_tcp_timeout_close_wait": 3600}},
		{"liberal", Settings{TCPBeLiberal: true}, map[string]int{"nf_conntrack_tcp_be_liberal": 1}},
		{"UDP", Settings{UDPTimeout: time.Hour}, map[string]int{"nf_conntrack_udp_timeout": 3600}},
		{"UDP streams", Settings{UDPStreamTimeout: 90 * time.Second}, map[string]int{"nf_conntrack_udp_timeout_stream": 90}},
		{"whole seconds", Settings{UDPTimeout: 2999 * time.Millisecond}, map[string]int{"nf_conntrack_udp_timeout": 2}},
		{"never 0 seconds", Settings{UDPTimeout: time.Millisecond}, map[string]int{"nf_conntrack_udp_timeout": 1}},
		{"negative", Settings{MaxPerCore: -1, UDPTimeout: -time.Second}, nil},
	} {
		root, read := settingsRoot(t)
		out, err := tc.settings.Apply(root)
		if err != nil || out.Warning != nil {
			t.Errorf("%s: %v, %v", tc.what, err, out.Warning)
		}
		got := make(map[string]int)
		for _, c := range out.Changed {
			got[filepath.Base(c.File)] = c.To
			if n := read(strings.TrimPrefix(c.File, root)); n != strconv.Itoa(c.To) {
				t.Errorf("%s: %s is %s, want %d", tc.what, c.File, n, c.To)
			}
		}
		if len(got) != len(tc.want) || len(got) > 0 && !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: wrote %v, want %v", tc.what, got, tc.want)
		}
		again, err := tc.settings.Apply(root)
		if err != nil || len(again.Changed) > 0 {
			t.Errorf("%s: once more: wrote %v, %v", tc.what, again.Changed, err)
		}
	}
}

// What each change was is known.
func TestSettingsTellChanges(t *testing.T) {
	root, _ := settingsRoot(t)
	out, err := Settings{UDPTimeout: time.Minute}.Apply(root)
	want := []Changed{{filepath.Join(root, sysctlDir, "nf_conntrack_udp_timeout"), 30, 60}}
	if err != nil || !reflect.DeepEqual(out.Changed, want) {
		t.Errorf("%v, %v, want %v", out.Changed, err, want)
	}
}

func TestSettingsErrors(t *testing.T) {
	root, read := settingsRoot(t)
	at := func(file string) string { return filepath.Join(root, sysctlDir, file) }
	if err := os.Remove(at("nf_conntrack_max")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("nf_conntrack_udp_timeout"), []byte("long\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]Settings{
		"open " + at("nf_conntrack_max") + ": no such file or directory; load the kernel module nf_conntrack, or set conntrack.maxPerCore: 0": {
			MaxPerCore: 1, TCPBeLiberal: true},
		"read " + at("nf_conntrack_udp_timeout") + `: strconv.Atoi: parsing "long": invalid syntax; set conntrack.udpTimeout: 0s`: {
			UDPTimeout: time.Second},
	} {
		if out, err := s.Apply(root); err == nil || err.Error() != want || out.Changed != nil {
			t.Errorf("%v, %v, want %s", out, err, want)
		}
	}
	if got := read(sysctlDir + "/nf_conntrack_tcp_be_liberal"); got != "0" {
		t.Errorf("it went on after an error: %s", got)
	}
}

// A hash table that cannot be made larger is no reason not to start.
func TestHashTableStays(t *testing.T) {
	for what, spoil := range map[string]func(file string) error{
		"missing": os.Remove,
		"not a number": func(file string) error {
			return os.WriteFile(file, []byte("x"), 0o644)
		},
		"a folder": func(file string) error {
			if err := os.Remove(file); err != nil {
				return err
			}
			return os.Mkdir(file, 0o755)
		},
	} {
		root, read := settingsRoot(t)
		if err := spoil(filepath.Join(root, hashSizeFile)); err != nil {
			t.Fatal(err)
		}
		out, err := Settings{MaxPerCore: 100000}.Apply(root)
		if err != nil || out.Warning == nil || !strings.Contains(out.Warning.Error(), hashSizeFile) || len(out.Changed) != 1 {
			t.Errorf("%s: %+v, %v", what, out, err)
		}
		if got := read(sysctlDir + "/nf_conntrack_max"); got != "400000" {
			t.Errorf("%s: nf_conntrack_max is %s", what, got)
		}
	}
}

// The kernel's own files, those of a namespace, where the number of flows cannot be changed.
func TestSettingsInTheKernel(t *testing.T) {
	ns := newNamespace(t)
	apply := func(s Settings) (out Outcome, err error) {
		ns.do(t, func() { out, err = s.Apply("/") })
		return out, err
	}
	s := Settings{
		TCPEstablishedTimeout: 1001 * time.Second, TCPCloseWaitTimeout: 1002 * time.Second, TCPBeLiberal: true,
		UDPTimeout: 1003 * time.Second, UDPStreamTimeout: 1004 * time.Second,
	}
	out, err := apply(s)
	if err != nil || out.Warning != nil || len(out.Changed) != 5 {
		t.Fatalf("%+v, %v", out, err)
	}
	for _, c := range out.Changed {
		ns.do(t, func() {
			if got, err := readInt(c.File); err != nil || got != c.To {
				t.Errorf("%s is %d, want %d: %v", c.File, got, c.To, err)
			}
		})
		if got, err := readInt(c.File); err != nil || got == c.To {
			t.Errorf("outside of the namespace %s is %d: %v", c.File, got, err)
		}
	}
	if out, err := apply(s); err != nil || len(out.Changed) > 0 {
		t.Errorf("once more: %+v, %v", out, err)
	}

	most, err := readInt("/proc/sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		t.Fatal(err)
	}
	_, err = apply(Settings{MaxPerCore: 1, Min: most + 1})
	const remedy = "run kube-proxy --init-only in a privileged init container with the host's network, or set conntrack.maxPerCore: 0"
	if err == nil || !errors.Is(err, fs.ErrPermission) || !strings.HasSuffix(err.Error(), remedy) ||
		!strings.Contains(err.Error(), "open /proc/sys/net/netfilter/nf_conntrack_max: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	if got, err := readInt("/proc/sys/net/netfilter/nf_conntrack_max"); err != nil || got != most {
		t.Errorf("the host's nf_conntrack_max is %d, was %d: %v", got, most, err)
	}
}

func TestCountCPUs(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0-1,4": 3, "0,2,4-7,9": 7, "": -1, "x": -1, "3-1": -1, "0-": -1, "-3": -1, "0,,1": -1} {
		n, ok := countCPUs(list)
		if !ok {
			n = -1
		}
		if n != want {
			t.Errorf("%q: %d, want %d", list, n, want)
		}
	}
	if n := cpus("/"); n < 1 {
		t.Errorf("this machine has %d CPUs", n)
	}
	if n := cpus(t.TempDir()); n < 1 {
		t.Errorf("a machine without the file has %d CPUs", n)
	}
}
