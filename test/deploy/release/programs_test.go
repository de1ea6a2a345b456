package release

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

// programs returns the unpacked archive of an architecture.
func programs(t *testing.T, arch string) string {
	t.Helper()
	archive := file(t, "nftproxy-VERSION-linux-"+arch+".tar.gz")
	want := []string{"kube-proxy", "nftproxy kube-proxy", "LICENSE", "THIRD-PARTY"}
	if got := entries(t, archive); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", archive, got, want)
	}
	return unpack(t, archive)
}

// TestVersions runs the programs; those for arm64 under qemu-user.
func TestVersions(t *testing.T) {
	for _, arch := range architectures {
		program := filepath.Join(programs(t, arch), "kube-proxy")
		version := environment(t, "VERSION")
		for _, tt := range []struct{ name, arg, want string }{
			{"kube-proxy", "--version", "nftproxy kube-proxy " + version + "\n"},
			{"nftproxy", "version", "nftproxy " + version + "\n"},
		} {
			cmd := &exec.Cmd{Path: program, Args: []string{tt.name, tt.arg}}
			if arch == "arm64" {
				cmd = exec.Command("qemu-aarch64-static", "-0", tt.name, program, tt.arg)
			}
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != tt.want {
				t.Errorf("%s: %s %s: got %v, %s; want %s", arch, tt.name, tt.arg, err, out, tt.want)
			}
		}
	}
}

// TestServe serves manifests: with the program for amd64 in a network
// namespace, and with that for arm64 in an emulated machine with Linux for
// arm64. qemu-user has no netlink sockets of netfilter.
func TestServe(t *testing.T) {
	serve := string(read(t, "testdata/serve.sh"))
	for _, arch := range architectures {
		dir := programs(t, arch)
		run(t, "cp", "-r", "testdata/manifests", dir)
		command := []string{"unshare", "--net", "sh", "-c", "cd " + dir + "; " + serve}
		if arch == "arm64" {
			kernels := filepath.Join(repository, "test/kernels/run")
			command = []string{kernels, "exec", "-k", "6.1-arm64", dir, serve}
		}
		out := run(t, command[0], command[1:]...)
		if !strings.Contains(out, "one of 2 endpoints") || !strings.Contains(out, "\n        10.244.2.5:8080  1/2\n") ||
			strings.Contains(out, "\ntable ") {
			t.Errorf("%s: got\n%s", arch, out)
		}
	}
}

// TestBillsOfMaterials compares the bills of materials with the modules that
// the linker wrote into the programs, and looks for the licence of each.
func TestBillsOfMaterials(t *testing.T) {
	for _, arch := range architectures {
		dir := programs(t, arch)
		want := linked(t, filepath.Join(dir, "kube-proxy"))
		bom := readBOM(t, file(t, "nftproxy-VERSION-linux-"+arch+".cdx.json"))
		licences := string(read(t, filepath.Join(dir, "THIRD-PARTY")))
		var got []string
		for _, c := range *bom.Components {
			got = append(got, c.Name+" "+c.Version)
			if c.PackageURL != "pkg:golang/"+c.Name+"@"+c.Version || c.Licenses == nil || len(*c.Licenses) == 0 {
				t.Errorf("%s: got component %+v", arch, c)
			}
			if !strings.Contains(licences, "=== "+c.Name+" "+c.Version+": ") {
				t.Errorf("%s: THIRD-PARTY has no licence of %s", arch, c.Name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got modules\n%s\nwant the modules of the program\n%s", arch,
				strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if c := bom.Metadata.Component; c.Version != environment(t, "VERSION") ||
			c.Name != "github.com/nftproxy/nftproxy" {
			t.Errorf("%s: got a bill of materials of %+v", arch, c)
		}
	}
}

// linked returns the modules in a program, with the standard library.
func linked(t *testing.T, program string) (modules []string) {
	t.Helper()
	for line := range strings.Lines(run(t, "go", "version", "-m", program)) {
		if fields := strings.Fields(line); fields[0] == "dep" {
			modules = append(modules, fields[1]+" "+fields[2])
		} else if version, ok := strings.CutPrefix(fields[len(fields)-1], "go1."); ok && fields[0] == program+":" {
			modules = append(modules, "std 1."+version)
		}
	}
	slices.Sort(modules)
	return modules
}

func readBOM(t *testing.T, path string) *cyclonedx.BOM {
	t.Helper()
	bom := new(cyclonedx.BOM)
	text := bytes.NewReader(read(t, path))
	if err := cyclonedx.NewBOMDecoder(text, cyclonedx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	return bom
}
