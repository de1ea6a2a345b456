package operator_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator"
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
	config := operator.Config{Version: "v1.2.3", Stdout: &out, Stderr: &out}
	if code := operator.Main(config, strings.Fields(commandLine)); code != 0 {
		fmt.Fprintf(&out, "exit code %d\n", code)
	}
	return conntrackMax.ReplaceAllString(warnings.ReplaceAllString(out.String(), ""), "${1}MAX${2}")
}

// warnings matches the warnings of doctor, and conntrackMax the maximum number
// of connections. They depend on the machine.
var warnings = regexp.MustCompile(`\nWARNINGS.*\n(  .*\n)*|,\n  "warnings": \[\n(    .*\n)*  \]`)

// affinitySet matches the names of affinity sets, which are random.
var affinitySet = regexp.MustCompile(`clients-\d+`)

var conntrackMax = regexp.MustCompile(`(of |"max": )\d+( connections|\n)`)

// compare runs the commands that name the sections of a file, and compares
// their output.
func compare(t *testing.T, file string) {
	t.Helper()
	golden, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, section := range golden.Files {
		got := affinitySet.ReplaceAllString(run(section.Name), "clients-N")
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

// An error is one line, and the exit code is 1.
func TestErrors(t *testing.T) {
	const serves = ": the command that serves, with the flags of kube-proxy, is kube-proxy"
	for commandLine, want := range map[string]string{
		"--config=/kube-proxy.yaml --v 2": "unknown flag: --config" + serves,
		"--proxy-mode nftables":           "unknown flag: --proxy-mode" + serves,
		"-v 2":                            "unknown shorthand flag: 'v' in -v" + serves,
		"stauts":                          `unknown command "stauts" for "nftproxy"`,
		"status now":                      `unknown command "now" for "nftproxy status"`,
		"status --nosuch":                 "unknown flag: --nosuch",
		"status --timeout 0s":             "--timeout 0s is not greater than 0",
		"services default":                `"default" is not NAMESPACE/NAME`,
		"explain 10.96.0.10": `destination "10.96.0.10" is not IP:PORT, [IP]:PORT or ` +
			"svc/NAMESPACE/NAME[:PORT]",
		"explain svc/web":      "destination svc/web is not svc/NAMESPACE/NAME[:PORT]",
		"flows --protocol udp": "--protocol needs a destination",
	} {
		if got, want := run(commandLine), "nftproxy: "+want+"\nexit code 1\n"; got != want {
			t.Errorf("%s: got %q, want %q", commandLine, got, want)
		}
	}
}

// Each error is one line that names the cause.
func TestTableErrors(t *testing.T) {
	tests := []struct{ name, rules, want string }{
		{"no table", "", "table ip kube-proxy does not exist"},
		{"another program", "table ip kube-proxy { chain services { }; }", "belongs to kube-proxy or another program"},
		{"dormant", "table ip kube-proxy { flags dormant; chain services { }; }", "dormant"},
		{
			"no base chain",
			"table ip kube-proxy { set service-targets { type ipv4_addr; }; chain external-local { }; }",
			"no chain nat-output",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tabletest.NewNode(t)
			tabletest.LoadNFT(t, test.rules)
			expectError(t, "explain 10.96.0.10:80 --from node", test.want)
			if test.name != "no base chain" {
				expectError(t, "trace 10.96.0.10:80", test.want)
				expectError(t, "trace", test.want)
			}
		})
	}
	t.Run("no permission", func(t *testing.T) {
		tabletest.NewNode(t)
		dir := t.TempDir()
		if err := os.Chmod(dir, 0); err != nil {
			t.Fatal(err)
		}
		dropCapabilities(t)
		expectError(t, "services --socket "+dir+"/nftproxy/1.sock", "no permission to ask the proxy, run as root: ")
		expectError(t, "explain 10.96.0.10:80 --from node", "CAP_NET_ADMIN")
		expectError(t, "trace 10.96.0.10:80", "CAP_NET_ADMIN")
		expectError(t, "flows 10.96.0.10:80", "CAP_NET_ADMIN")
	})
}

func expectError(t *testing.T, commandLine, want string) {
	t.Helper()
	expect(t, commandLine, want, 1)
}

// expect runs a command that must fail with one line.
func expect(t *testing.T, commandLine, want string, code int) {
	t.Helper()
	got := run(commandLine)
	if !strings.HasPrefix(got, "nftproxy: ") || strings.Count(got, "\n") != 2 || !strings.Contains(got, want) ||
		!strings.HasSuffix(got, fmt.Sprintf("exit code %d\n", code)) {
		t.Errorf("%s: got %q, want one line with %q and exit code %d", commandLine, got, want, code)
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
