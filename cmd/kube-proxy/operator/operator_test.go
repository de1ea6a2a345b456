package operator_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/script"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// run is runRaw without what depends on the machine.
func run(args ...string) string {
	return conntrackMax.ReplaceAllString(warnings.ReplaceAllString(runRaw(args...), ""), "${1}MAX${2}")
}

// runRaw runs the command and returns its output. An error is written as
//
//	nftproxy: error
//	exit code 1
func runRaw(args ...string) string {
	var out bytes.Buffer
	config := operator.Config{Version: "v1.2.3", Stdout: &out, Stderr: &out}
	if code := operator.Main(config, args); code != 0 {
		fmt.Fprintf(&out, "exit code %d\n", code)
	}
	return out.String()
}

// warnings matches the warnings of doctor, and conntrackMax the maximum number
// of connections. They depend on the machine.
var warnings = regexp.MustCompile(`\nWARNINGS, see .*\n(  .*\n)*|,\n  "warnings": \[\n(    .*\n)*  \]`)

// affinitySet matches the names of affinity sets, which are random.
var affinitySet = regexp.MustCompile(`clients-\d+`)

var conntrackMax = regexp.MustCompile(`(of |"max": )\d+( connections|\n)`)

// compare runs the commands that name the sections of a file, and compares
// their output.
func compare(t *testing.T, file string) {
	t.Helper()
	script.Sections(t, file, func(commandLine, _ string) string {
		return affinitySet.ReplaceAllString(run(strings.Fields(commandLine)...), "clients-N")
	})
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
	must.NoError(t, exec.Command("ip", "link", "add", "vetha1", "type", "veth", "peer", "vethb1").Run())
	serve(t, table.Config{Rules: rules})
	compare(t, "testdata/interface.txtar")
}

// serve writes the tables of the sample Services.
func serve(t *testing.T, config table.Config) {
	t.Helper()
	tables, err := table.New(config, nft.IPv4)
	must.NoError(t, err)
	defer tables[0].Close()
	must.NoError(t, tables[0].Setup())
	tabletest.PassSample(tables[0])
	tabletest.Sync(t, tables[0])
}

// dropCapabilities drops the capabilities of the thread, which ends with the
// test.
func dropCapabilities(t *testing.T) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	must.NoError(t, unix.Capset(&header, &none[0]))
}
