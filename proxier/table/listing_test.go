package table_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	listed "github.com/nftproxy/nftproxy/test/lab/listing"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// kernelText returns the table in the kernel as nft lists it.
func (e *engine) kernelText(f nft.Family) string {
	text, err := e.runNFT(listCommand(f))
	if err != nil {
		e.t.Fatal(err)
	}
	return text
}

// runNFT runs commands of nft, as one transaction.
func (e *engine) runNFT(args ...string) (string, error) {
	return nstest.NFT(e.t).Run(strings.Join(args, " "))
}

func listCommand(f nft.Family) string { return "list table " + f.String() + " " + ruleset.TableName }

// kernelListing returns the canonical listing of the table in the kernel.
func (e *engine) kernelListing(f nft.Family) []listed.Line { return canonical(f, e.kernelText(f)) }

// loadedListings are results of loadedListing, by text: a script compares the
// table with the same one again and again. loaders are programs that load such
// a text, each in an empty namespace.
var (
	loadedListings sync.Map
	loaders        = make(chan *listed.Program, 8)
)

// loadedListing returns the canonical listing of a table after nft has loaded
// it into an empty namespace.
func loadedListing(f nft.Family, text string) ([]listed.Line, error) {
	if known, ok := loadedListings.Load(text); ok {
		return known.([]listed.Line), nil
	}
	var loader *listed.Program
	var err error
	select {
	case loader = <-loaders:
	default:
		if loader, err = listed.Start(true); err != nil {
			return nil, err
		}
	}
	defer func() {
		select {
		case loaders <- loader:
		default:
			_ = loader.Close()
		}
	}()
	if err = loader.Load(text); err != nil {
		return nil, fmt.Errorf("load a table with nft: %w\n%s", err, text)
	}
	out, err := loader.Run(listCommand(f))
	if err != nil {
		return nil, err
	}
	lines := canonical(f, out)
	loadedListings.Store(text, lines)
	return lines, nil
}

var elementComments = regexp.MustCompile(` comment "[^"]*"( :|$)`)

// canonical sorts the lines of a listing: the order of objects and elements
// depends on the order of writing. The rules of a chain get numbers. Comments
// of elements are removed.
func canonical(f nft.Family, listing string) []listed.Line {
	all, rule := listed.Parse(f.String(), listing), 0
	for i := range all {
		switch l := &all[i]; {
		case l.Element:
			l.Text = elementComments.ReplaceAllString(l.Text, "$1")
		case l.Text == "":
			rule = 0
		case strings.HasPrefix(l.Object, "chain "):
			rule++
			l.Text = fmt.Sprintf("%03d %s", rule, l.Text)
		}
	}
	slices.SortFunc(all, func(a, b listed.Line) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all) // while a set grows, the kernel can list an element twice
}

// without returns the lines of a listing without some sets. `unused` stands for
// balancers and affinity sets that nothing refers to, `affinity` for chains of
// session affinity, whose rules can have another order, and for the reserved
// ids, and `takeover` for copies of base chains.
func without(listing []listed.Line, except ...string) (lines []string) {
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
			prefixes = append(prefixes, "set "+name+" ")
		}
	}
	for _, l := range listing {
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(l.Object+" ", p) }) {
			lines = append(lines, l.String())
		}
	}
	return lines
}

var (
	classMap    = regexp.MustCompile(`^map [a-z-]+-classes$`)
	balancerRow = regexp.MustCompile(`^([0-9a-f]+:[0-9a-f]+) : goto ([a-z-]+-\d+)$`)
	affinitySet = regexp.MustCompile(`@(sticky-clients-\d+) `)
)

// withoutIdle returns a listing without the balancers that no row refers to
// and the affinity sets that no rule refers to. A Table keeps them for the
// next Service.
func withoutIdle(listing []listed.Line) []listed.Line {
	used, idle := make(map[string]bool), make(map[string]bool) // classes and sets; chains
	for _, l := range listing {
		if _, class, ok := strings.Cut(l.Text, " : "); ok && classMap.MatchString(l.Object) {
			used[class] = true
		}
		if m := affinitySet.FindStringSubmatch(l.Text); m != nil {
			used["set "+m[1]] = true
		}
	}
	listing = slices.DeleteFunc(slices.Clone(listing), func(l listed.Line) bool {
		m := balancerRow.FindStringSubmatch(l.Text)
		if m == nil || used[m[1]] {
			return strings.HasPrefix(l.Object, "set sticky-clients-") && !used[l.Object]
		}
		idle["chain "+m[2]] = true
		return true
	})
	return slices.DeleteFunc(listing, func(l listed.Line) bool { return idle[l.Object] })
}

// checkWanted fails the test if the table in the kernel is not the wanted one.
func (e *engine) checkWanted(t testing.TB) {
	t.Helper()
	if err := e.wanted(); err != nil {
		t.Fatal(err)
	}
}

// differenceToWanted returns the difference between the wanted table and the
// table in the kernel, except for some sets, "" for none, and the latter as nft
// lists it.
func (e *engine) differenceToWanted(t *table.Table, except ...string) (diff, got string, err error) {
	var text bytes.Buffer
	if err := t.Fprint(&text); err != nil {
		return "", "", err
	}
	want, err := loadedListing(t.Family(), text.String())
	if err != nil {
		return "", "", err
	}
	for range 3 { // while a set grows, the kernel can list it without some elements
		got = e.kernelText(t.Family())
		lines := without(canonical(t.Family(), got), append(except, "unused")...)
		if diff = listed.Difference(without(want, except...), lines); diff == "" {
			break
		}
	}
	return diff, got, nil
}

// checkTexts returns an error if nft lists a rule of the table in another way
// than Rule.Text.
func (e *engine) checkTexts(f nft.Family, text string) error {
	if _, err := os.Stat("/etc/protocols"); err != nil {
		return nil // nft lists the numbers of protocols
	}
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
