package neighbours

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/listing"
)

// nftVersion is a version of the nft program.
type nftVersion struct {
	number    string
	system    string
	release   string // of the system
	listsOnly bool   // it does not load its listing of the tables
}

func nftVersions() []nftVersion {
	return []nftVersion{
		{"0.9.8", "Debian", "bullseye", true},
		{"1.0.2", "Ubuntu", "jammy", false},
		{"1.0.6", "Debian", "bookworm", false},
		{"1.0.9", "Ubuntu", "noble", false},
		{"1.1.3", "Debian", "trixie", false},
	}
}

// name returns "nft 1.0.6 (Debian bookworm)".
func (v *nftVersion) name() string {
	return fmt.Sprintf("nft %s (%s %s)", v.number, v.system, v.release)
}

// check checks the version of the program. It adds the file of package netbase
// by which nft names protocols, unless it exists: nft cannot load "protocol 6"
// of a ct timeout.
func (v *nftVersion) check(t *testing.T) {
	t.Helper()
	root := filepath.Join(roots, v.release)
	if _, err := os.Stat(root); err != nil {
		t.Skipf("%s was not available to setup", v.name())
	}
	out, err := exec.Command("chroot", root, "/usr/sbin/nft", "--version").Output()
	if err != nil || !strings.HasPrefix(string(out), "nftables v"+v.number+" ") {
		t.Fatalf("got %q, %v of nft --version, want %s", out, err, v.number)
	}
	protocols := filepath.Join(root, "etc/protocols")
	if _, err := os.Stat(protocols); err == nil {
		return
	}
	if err := os.WriteFile(protocols, []byte("tcp 6 TCP\nudp 17 UDP\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// nft runs the version with commands in nft syntax. They are an argument,
// because the root file systems have no /dev.
func (v *nftVersion) nft(at *lab.Namespace, commands string) (string, error) {
	root, err := filepath.Abs(filepath.Join(roots, v.release))
	if err != nil {
		return "", err
	}
	cmd := at.Command(context.Background(), "chroot", root, "/usr/sbin/nft", commands)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", v.name(), err, &stderr)
	}
	return string(out), err
}

// TestVersions shows that versions of nft list the tables of the proxy and load
// their listing, and that the proxy takes over and removes what they loaded.
func TestVersions(t *testing.T) {
	for _, v := range nftVersions() {
		t.Run(v.release, func(t *testing.T) {
			t.Parallel()
			v.check(t)
			n := newNode(t, "bookworm")
			n.start()
			list := func() (string, error) { return v.nft(n.at, "list ruleset") }
			loaded, err := list()
			if err != nil {
				t.Fatal(err)
			}
			n.listing = list
			n.tables = n.ownTables()
			n.stop()
			n.cleanUp()
			switch _, err := v.nft(n.at, loaded); {
			case v.listsOnly != (err != nil):
				t.Fatalf("loading the listing: got %v, want error %v", err, v.listsOnly)
			case v.listsOnly:
				return
			}
			again, err := list()
			if d := listing.Difference(sortedLines(loaded), sortedLines(again)); err != nil || d != "" {
				t.Errorf("after loading the listing: got %v, %s", err, d)
			}
			if failed := n.failing(patience); len(failed) > 0 {
				t.Errorf("after loading the listing: %q", failed)
			}
			before := n.tables
			n.start()
			n.works("the proxy takes over")
			if d := listing.Difference(before, n.tables); d != "" {
				t.Errorf("after the proxy took over: %s", d)
			}
			n.stop()
			n.cleanUp()
			if _, err := v.nft(n.at, loaded); err != nil {
				t.Fatal(err)
			}
			n.cleanUp()
		})
	}
}
