package neighbours

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// nftVersion is a version of the nft program, and what it does with the tables
// of the proxy.
type nftVersion struct {
	release string // of Debian
	aborts  bool   // when it lists the tables
}

func nftVersions() []nftVersion {
	return []nftVersion{{"bullseye", true}, {"bookworm", false}, {"trixie", false}}
}

// name returns "nft 1.0.6 (Debian bookworm)".
func (v *nftVersion) name(t *testing.T) string {
	out, err := exec.Command("chroot", filepath.Join(roots, v.release), "/usr/sbin/nft", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, number, _ := strings.Cut(string(out), " v")
	number, _, _ = strings.Cut(number, " ")
	return "nft " + number + " (Debian " + v.release + ")"
}

// nft runs the version with an input.
func (v *nftVersion) nft(at *lab.Namespace, input string, args ...string) (string, error) {
	root, err := filepath.Abs(filepath.Join(roots, v.release))
	if err != nil {
		return "", err
	}
	cmd := at.Command(context.Background(), "chroot", append([]string{root, "/usr/sbin/nft"}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("nft %v: %w: %s", args, err, &stderr)
	}
	return string(out), err
}

// TestVersions shows that versions of nft list the tables of the proxy and load
// their listing, and that the proxy takes over and removes what they loaded.
func TestVersions(t *testing.T) {
	for _, v := range nftVersions() {
		t.Run(v.release, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "bookworm")
			n.start()
			list := func() (string, error) { return v.nft(n.at, "", "list", "ruleset") }
			listing, err := list()
			if v.aborts {
				if err == nil || !strings.Contains(err.Error(), "Assertion") {
					t.Errorf("got %v, want that it aborts", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			n.listing = list
			n.tables = n.ownTables()
			n.stop()
			n.cleanUp()
			if _, err := v.nft(n.at, listing, "-f", "/dev/stdin"); err != nil {
				t.Fatal(err)
			}
			if again, err := list(); err != nil || !sameLines(again, listing) {
				t.Errorf("after loading the listing: got %v, %s", err, difference(sortedLines(again), sortedLines(listing)))
			}
			if failed := n.failing(patience); len(failed) > 0 {
				t.Errorf("after loading the listing: %q", failed)
			}
			before := n.tables
			n.start()
			n.works("the proxy takes over")
			if n.tables != before {
				t.Errorf("after the proxy took over: %s", difference(n.tables, before))
			}
			n.stop()
			n.cleanUp()
		})
	}
}

// sameLines reports whether two listings have the same lines, except for
// counters and the order of elements.
func sameLines(a, b string) bool { return sortedLines(a) == sortedLines(b) }
