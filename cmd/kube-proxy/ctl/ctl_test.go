package ctl_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/ctl"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

var update = flag.Bool("update", false, "write the golden files")

// run runs the command and returns its output. An error is written as
//
//	nftproxy: error
//	exit code 1
func run(commandLine string) string {
	var out bytes.Buffer
	config := ctl.Config{Version: "v1.2.3", Stdout: &out, Stderr: &out}
	if code := ctl.Main(config, strings.Fields(commandLine)); code != 0 {
		fmt.Fprintf(&out, "exit code %d\n", code)
	}
	return out.String()
}

// compare runs the commands that name the sections of a file, and compares
// their output.
func compare(t *testing.T, file string) {
	t.Helper()
	golden, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, section := range golden.Files {
		got := run(section.Name)
		if want := strings.TrimSuffix(string(section.Data), "\n"); got != want && !*update {
			t.Errorf("%s: got\n%s\nwant\n%s", section.Name, got, want)
		}
		golden.Files[i].Data = []byte(got + "\n")
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(golden), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The sections of testdata/sample.txtar are named after the arguments of
// commands on a node with the sample Services.
func TestSample(t *testing.T) {
	tabletest.NewNode(t)
	serve(t, table.Config{Rules: tabletest.Rules()})
	compare(t, "testdata/sample.txtar")
}

// Without a range of pod addresses, packets are from this node by default.
func TestPodsByInterface(t *testing.T) {
	tabletest.NewNode(t)
	rules := tabletest.Rules()
	rules.DetectLocal.Mode, rules.DetectLocal.InterfaceNamePrefix = "InterfaceNamePrefix", "veth"
	serve(t, table.Config{Rules: rules})
	compare(t, "testdata/interface.txtar")
}

// serve writes the tables of the sample Services.
func serve(t *testing.T, config table.Config) {
	t.Helper()
	tables, err := table.New(config, nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	defer tables[0].Close()
	if err := tables[0].Setup(); err != nil {
		t.Fatal(err)
	}
	tabletest.PassSample(tables[0])
	tabletest.Sync(t, tables[0])
}

// Each error is one line that names the cause.
func TestTableErrors(t *testing.T) {
	tests := []struct{ name, rules, want string }{
		{"no table", "", "table ip kube-proxy does not exist"},
		{"another program", "table ip kube-proxy { chain services { }; }", "belongs to kube-proxy or another program"},
		{"dormant", "table ip kube-proxy { flags dormant; chain services { }; }", "dormant"},
		{
			"no base chain", "table ip kube-proxy { set service-endpoints { type ipv4_addr; }; chain external-local { }; }",
			"no chain nat-output",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tabletest.NewNode(t)
			tabletest.LoadNFT(t, test.rules)
			expectError(t, test.want)
		})
	}
	t.Run("no permission", func(t *testing.T) {
		tabletest.NewNode(t)
		dropCapabilities(t)
		expectError(t, "CAP_NET_ADMIN")
	})
}

func expectError(t *testing.T, want string) {
	t.Helper()
	got := run("explain 10.96.0.10:80 --from node")
	if !strings.HasPrefix(got, "nftproxy: ") || strings.Count(got, "\n") != 2 || !strings.Contains(got, want) ||
		!strings.HasSuffix(got, "exit code 1\n") {
		t.Errorf("got %q, want one line with %q", got, want)
	}
}

// dropCapabilities drops the capabilities of the thread, which ends with the
// test.
func dropCapabilities(t *testing.T) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		t.Fatal(err)
	}
}
