package conntrack

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// kernelFiles creates the files of a kernel with four CPUs below a directory.
func kernelFiles(t *testing.T) (root string) {
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
		statFile:     "cpu  10 20\ncpu0 4 5\ncpu1 2 5\ncpu2 2 5\ncpu5 2 5\nintr 8 0 1\n",
	} {
		file = filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func wantInt(t *testing.T, file string, want int) {
	t.Helper()
	if got, err := readInt(file); got != want || err != nil {
		t.Errorf("%s: got %d, %v, want %d", file, got, err, want)
	}
}

func TestApply(t *testing.T) {
	type values = map[string]int // by the base name of the file
	for name, tc := range map[string]struct {
		settings Settings
		want     values // written
	}{
		"no settings":   {Settings{}, nil},
		"minimum alone": {Settings{Min: 1000000}, nil},
		"limit per CPU": {
			Settings{MaxPerCore: 100000, Min: 131072}, values{"nf_conntrack_max": 400000, "hashsize": 100000},
		},
		"hash table one bucket too small": {
			Settings{MaxPerCore: 65537}, values{"nf_conntrack_max": 262148, "hashsize": 65537},
		},
		"lower limit": {Settings{MaxPerCore: 32768, Min: 131072}, values{"nf_conntrack_max": 131072}},
		"minimum":     {Settings{MaxPerCore: 1, Min: 300000}, values{"nf_conntrack_max": 300000, "hashsize": 75000}},
		"maximum of the limit per CPU": {
			Settings{MaxPerCore: 1 << 20}, values{"nf_conntrack_max": 1 << 20, "hashsize": 1 << 18},
		},
		"limit per CPU at its maximum, higher minimum": {
			Settings{MaxPerCore: 1 << 20, Min: 1 << 21}, values{"nf_conntrack_max": 1 << 20, "hashsize": 1 << 18},
		},
		"minimum above the maximum of the limit per CPU": {
			Settings{MaxPerCore: 1, Min: 1 << 21}, values{"nf_conntrack_max": 1 << 21, "hashsize": 1 << 19},
		},
		"current values": {Settings{
			MaxPerCore: 65536, TCPEstablishedTimeout: 120 * time.Hour, TCPCloseWaitTimeout: time.Minute,
			UDPTimeout: 30 * time.Second, UDPStreamTimeout: 2 * time.Minute,
		}, nil},
		"kube-proxy's defaults": {
			Settings{
				MaxPerCore: 32768, Min: 131072, TCPEstablishedTimeout: 24 * time.Hour, TCPCloseWaitTimeout: time.Hour,
			},
			values{
				"nf_conntrack_max": 131072, "nf_conntrack_tcp_timeout_established": 86400,
				"nf_conntrack_tcp_timeout_close_wait": 3600,
			},
		},
		"established": {
			Settings{TCPEstablishedTimeout: time.Hour}, values{"nf_conntrack_tcp_timeout_established": 3600},
		},
		"close wait": {
			Settings{TCPCloseWaitTimeout: time.Hour}, values{"nf_conntrack_tcp_timeout_close_wait": 3600},
		},
		"liberal":     {Settings{TCPBeLiberal: true}, values{"nf_conntrack_tcp_be_liberal": 1}},
		"UDP":         {Settings{UDPTimeout: time.Hour}, values{"nf_conntrack_udp_timeout": 3600}},
		"UDP streams": {Settings{UDPStreamTimeout: 90 * time.Second}, values{"nf_conntrack_udp_timeout_stream": 90}},
		"fractions":   {Settings{UDPTimeout: 2999 * time.Millisecond}, values{"nf_conntrack_udp_timeout": 2}},
		"below 1 s":   {Settings{UDPTimeout: time.Millisecond}, values{"nf_conntrack_udp_timeout": 1}},
		"negative":    {Settings{MaxPerCore: -1, UDPTimeout: -time.Second}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			root := kernelFiles(t)
			done, err := tc.settings.Apply(root)
			if err != nil || done.Warning != nil {
				t.Errorf("got %v, %v, want no error", err, done.Warning)
			}
			got := make(values)
			for _, c := range done.Changed {
				got[filepath.Base(c.File)] = c.To
				wantInt(t, c.File, c.To)
			}
			if !maps.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			again, err := tc.settings.Apply(root)
			if err != nil || len(again.Changed) > 0 {
				t.Errorf("second call: got %v, %v, want no change", again.Changed, err)
			}
		})
	}
}

func TestApplyReturnsPreviousValues(t *testing.T) {
	root := kernelFiles(t)
	done, err := Settings{UDPTimeout: time.Minute}.Apply(root)
	want := []ChangedFile{{filepath.Join(root, sysctlDir, "nf_conntrack_udp_timeout"), 30, 60}}
	if err != nil || !slices.Equal(done.Changed, want) {
		t.Errorf("got %v, %v, want %v", done.Changed, err, want)
	}
}

func TestApplyErrors(t *testing.T) {
	root := kernelFiles(t)
	maxFile := filepath.Join(root, sysctlDir, "nf_conntrack_max")
	if err := os.Remove(maxFile); err != nil {
		t.Fatal(err)
	}
	udpFile := filepath.Join(root, sysctlDir, "nf_conntrack_udp_timeout")
	if err := os.WriteFile(udpFile, []byte("long\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]Settings{
		"open " + maxFile + ": no such file or directory; " +
			"load the kernel module nf_conntrack, or set conntrack.maxPerCore: 0": {MaxPerCore: 1, TCPBeLiberal: true},
		"read " + udpFile + `: strconv.Atoi: parsing "long": invalid syntax; ` +
			"set conntrack.udpTimeout: 0s": {UDPTimeout: time.Second},
	} {
		if got, err := s.Apply(root); err == nil || err.Error() != want || got.Changed != nil {
			t.Errorf("got %v, %v, want %s", got, err, want)
		}
	}
	wantInt(t, filepath.Join(root, sysctlDir, "nf_conntrack_tcp_be_liberal"), 0) // after the first error
}

// Apply returns a warning if the hash table cannot grow.
func TestApplyWithoutHashTable(t *testing.T) {
	for name, spoil := range map[string]func(file string) error{
		"missing":      os.Remove,
		"not a number": func(file string) error { return os.WriteFile(file, []byte("x"), 0o644) },
		"a directory": func(file string) error {
			if err := os.Remove(file); err != nil {
				return err
			}
			return os.Mkdir(file, 0o755)
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := kernelFiles(t)
			if err := spoil(filepath.Join(root, hashSizeFile)); err != nil {
				t.Fatal(err)
			}
			got, err := Settings{MaxPerCore: 100000}.Apply(root)
			if err != nil || len(got.Changed) != 1 {
				t.Errorf("got %+v, %v, want one change", got, err)
			}
			if got.Warning == nil || !strings.Contains(got.Warning.Error(), hashSizeFile) {
				t.Errorf("got warning %v, want one for %s", got.Warning, hashSizeFile)
			}
			wantInt(t, filepath.Join(root, sysctlDir, "nf_conntrack_max"), 400000)
		})
	}
}

// Apply writes the sysctls of a network namespace.
func TestApplyInNamespace(t *testing.T) {
	ns := newNamespace(t)
	s := Settings{
		TCPEstablishedTimeout: 1001 * time.Second, TCPCloseWaitTimeout: 1002 * time.Second, TCPBeLiberal: true,
		UDPTimeout: 1003 * time.Second, UDPStreamTimeout: 1004 * time.Second,
	}
	done, err := ns.apply(s)
	if err != nil || done.Warning != nil || len(done.Changed) != 5 {
		t.Fatalf("got %+v, %v, want 5 changes", done, err)
	}
	for _, c := range done.Changed {
		ns.Do(func() { wantInt(t, c.File, c.To) })
		if got, err := readInt(c.File); err != nil || got == c.To {
			t.Errorf("%s in the initial namespace: got %d, %v, want another value", c.File, got, err)
		}
	}
	if again, err := ns.apply(s); err != nil || len(again.Changed) > 0 {
		t.Errorf("second call: got %+v, %v, want no change", again, err)
	}
}

func (ns namespace) apply(s Settings) (done Applied, err error) {
	ns.Do(func() { done, err = s.Apply("/") })
	return done, err
}

// nf_conntrack_max can be written in the initial namespace only.
func TestApplyMaxInNamespace(t *testing.T) {
	const file = "/" + sysctlDir + "/nf_conntrack_max"
	before, err := readInt(file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = newNamespace(t).apply(Settings{MaxPerCore: 1, Min: before + 1})
	want := "; the current value is " + strconv.Itoa(before) + ": run kube-proxy --init-only in a privileged " +
		"init container with the host's network, or set conntrack.maxPerCore: 0"
	if err == nil || !errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "\n") ||
		!strings.HasSuffix(err.Error(), want) || !strings.Contains(err.Error(), "open "+file+": ") {
		t.Errorf("got %v, want one line that ends with %s", err, want)
	}
	wantInt(t, file, before)
}

func TestReadUsage(t *testing.T) {
	root := kernelFiles(t)
	if _, err := ReadUsage(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without nf_conntrack_count: got error %v, want ErrNotExist", err)
	}
	if err := os.WriteFile(filepath.Join(root, sysctlDir, "nf_conntrack_count"), []byte("65536\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := ReadUsage(root)
	if want := (Usage{Entries: 65536, Max: 262144}); got != want || err != nil || got.Full() != 0.25 {
		t.Errorf("got %+v, %v, fill %v, want %+v and 0.25", got, err, got.Full(), want)
	}
	if full := (Usage{Entries: 1}).Full(); full != 0 {
		t.Errorf("without a limit: got fill %v, want 0", full)
	}
}

func TestCPUs(t *testing.T) {
	for text, want := range map[string]int{
		"cpu  10 20 30 40\ncpu0 5 10 15 20\ncpu1 5 10 15 20\nintr 8 0 1\nctxt 9\n": 2,
		"cpu  10 20\ncpu0 5 10\ncpu2 3 4\ncpu15 1 2\nintr 8 0 1\n":                 3,
		"cpu  10 20\nintr 8 0 1\n": runtime.NumCPU(),
		"":                         runtime.NumCPU(),
	} {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, statFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := cpus(root); got != want {
			t.Errorf("%q: got %d CPUs, want %d", text, got, want)
		}
	}
	if got := cpus(t.TempDir()); got != runtime.NumCPU() {
		t.Errorf("without the file: got %d CPUs, want %d", got, runtime.NumCPU())
	}
	// The kernel lists the same CPUs in another file.
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	if first, last, ok := strings.Cut(strings.TrimSpace(string(online)), "-"); ok && first == "0" {
		if got := cpus("/"); last != strconv.Itoa(got-1) {
			t.Errorf("got %d CPUs, want those in %s", got, online)
		}
	}
}
