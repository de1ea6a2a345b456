package table_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	listed "github.com/nftproxy/nftproxy/test/lab/listing"
)

// kernelListing returns the canonical listing of the table in the kernel.
func (e *engine) kernelListing(f nft.Family) []string {
	return canonical(tabletest.NFT(e.t, "", "list", "table", f.String(), ruleset.TableName))
}

// loadedListing returns the canonical listing of a table after nft has loaded
// it into an empty namespace.
func loadedListing(f nft.Family, text string) ([]string, error) {
	cmd := exec.Command("sh", "-c", "nft -f - && nft list table "+f.String()+" "+ruleset.TableName)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("load a table with nft: %w\n%s\n%s", err, out, text)
	}
	return canonical(string(out)), nil
}

// without returns a listing without some sets. `unused` stands for balancers
// and affinity sets that nothing refers to, `affinity` for chains of session
// affinity, whose rules can have another order, and for the reserved ids, and
// `takeover` for copies of base chains.
func without(listing []string, except ...string) []string {
	var prefixes []string
	for _, name := range except {
		switch name {
		case "unused":
			listing = withoutIdle(listing)
		case "affinity":
			prefixes = append(prefixes, "chain affinity", "set reserved-ids ")
		case "takeover":
			prefixes = append(prefixes, "chain takeover-")
		default:
			prefixes = append(prefixes, "set "+name+" {")
		}
	}
	return slices.DeleteFunc(slices.Clone(listing), func(block string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(block, p) })
	})
}

var (
	elementComments = regexp.MustCompile(` comment "[^"]*"( :|,| \}|$)`)
	expirations     = regexp.MustCompile(` expires \w+`)
	counted         = regexp.MustCompile(`\bpackets \d+ bytes \d+\b`)
)

// canonical splits a listing into blocks, one for each counter, set and chain.
// It sorts the blocks and their elements, whose order depends on the order of
// writing, and removes comments and expiration times of elements, and the
// values of counters.
func canonical(listing string) []string {
	var blocks []string
	listing = counted.ReplaceAllString(listing, "")
	const header = "comment \"rules for kube-proxy\"\n"
	listing = strings.Replace(strings.ReplaceAll(listing, "\n\t}\n", "\n\t}\x00"), header, header+"\x00", 1)
	for _, block := range strings.Split(listing, "\x00") {
		head, elements, ok := strings.Cut(block, "elements = {")
		if ok {
			elements, tail, _ := strings.Cut(elements, "}")
			var list []string
			for _, e := range strings.Split(elements, ",") {
				e = strings.TrimSpace(e)
				e = elementComments.ReplaceAllString(e, "$1")
				list = append(list, expirations.ReplaceAllString(e, ""))
			}
			slices.Sort(list)
			list = slices.Compact(list) // while a set grows, the kernel can list an element twice
			block = head + "elements = {\n" + strings.Join(list, "\n") + "}" + tail
		}
		blocks = append(blocks, strings.TrimSpace(block))
	}
	slices.Sort(blocks)
	return blocks
}

// difference returns the blocks that are in one of two listings only.
func difference(want, got []string) string {
	var s strings.Builder
	for _, b := range want {
		if !slices.Contains(got, b) {
			s.WriteString("- " + b + "\n")
		}
	}
	for _, b := range got {
		if !slices.Contains(want, b) {
			s.WriteString("+ " + b + "\n")
		}
	}
	return s.String()
}

var (
	classMapBlock    = regexp.MustCompile(`^map [a-z-]+-classes {`)
	classData        = regexp.MustCompile(`: ([0-9a-f]+:[0-9a-f]+)`)
	balancerRow      = regexp.MustCompile(`\n([0-9a-f]+:[0-9a-f]+) : goto ([a-z-]+-\d+)\b`)
	affinitySetBlock = regexp.MustCompile(`^set (sticky-clients-\d+) {`)
)

// withoutIdle returns a listing without the balancers that no row refers to
// and the affinity sets that no rule refers to. A Table keeps them for the
// next Service.
func withoutIdle(listing []string) []string {
	all := strings.Join(listing, "\n") + "\n"
	used := make(map[string]bool) // classes
	for _, block := range listing {
		if classMapBlock.MatchString(block) {
			for _, m := range classData.FindAllStringSubmatch(block, -1) {
				used[m[1]] = true
			}
		}
	}
	idle := make(map[string]bool) // headers of chains
	listing = slices.Clone(listing)
	for i, block := range listing {
		listing[i] = balancerRow.ReplaceAllStringFunc(block, func(row string) string {
			m := balancerRow.FindStringSubmatch(row)
			if used[m[1]] {
				return row
			}
			idle["chain "+m[2]+" {"] = true
			return ""
		})
	}
	return slices.DeleteFunc(listing, func(block string) bool {
		if m := affinitySetBlock.FindStringSubmatch(block); m != nil {
			return !strings.Contains(all, "@"+m[1]+" ")
		}
		head, _, _ := strings.Cut(block, "\n")
		return idle[head]
	})
}

// checkWanted fails the test if the table in the kernel is not the wanted one.
func (e *engine) checkWanted(t testing.TB) {
	t.Helper()
	if err := e.wanted(); err != nil {
		t.Fatal(err)
	}
}

// differenceToWanted returns the difference between the wanted table and the
// table in the kernel, except for some sets, "" for none.
func (e *engine) differenceToWanted(t *table.Table, except ...string) (string, error) {
	var text bytes.Buffer
	if err := t.Fprint(&text); err != nil {
		return "", err
	}
	diff := ""
	for range 3 { // while a set grows, the kernel can leave out elements
		want, err := loadedListing(t.Family(), text.String())
		if err != nil {
			return "", err
		}
		got := without(e.kernelListing(t.Family()), append(except, "unused")...)
		if diff = difference(without(want, except...), got); diff == "" {
			break
		}
	}
	return diff, nil
}

// checkTexts returns an error if nft lists a rule of the table in another way
// than Rule.Text.
func (e *engine) checkTexts(f nft.Family) error {
	if _, err := os.Stat("/etc/protocols"); err != nil {
		return nil // nft lists the numbers of protocols
	}
	text := tabletest.NFT(e.t, "", "--stateless", "list", "table", f.String(), ruleset.TableName)
	want := make(map[string][]string)
	for _, l := range listed.Parse(f.String(), text) {
		if chain, ok := strings.CutPrefix(l.Object, "chain "); ok && l.Text != "" &&
			!strings.HasPrefix(l.Text, "type ") {
			want[chain] = append(want[chain], l.Text)
		}
	}
	for chain, rules := range want {
		found, err := e.conn.Rules(&nft.Table{Family: f, Name: ruleset.TableName}, chain)
		if err != nil {
			return err
		}
		var got []string
		for _, r := range found {
			got = append(got, r.Text(f))
		}
		if !slices.Equal(got, rules) {
			return fmt.Errorf("chain %s: got rules %q, want %q", chain, got, rules)
		}
	}
	return nil
}
