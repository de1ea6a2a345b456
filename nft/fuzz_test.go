package nft

import (
	_ "embed"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// recordedAnswers are messages of kernels, and a message that was sent to
// them.
//
//go:embed testdata/answers.txt
var recordedAnswers string

// answersOf returns the recorded datagrams of these kinds, or all datagrams.
func answersOf(tb testing.TB, kinds ...string) [][]byte {
	tb.Helper()
	var out [][]byte
	for line := range strings.Lines(recordedAnswers) {
		kind, data, _ := strings.Cut(strings.TrimSpace(line), " ")
		if kind == "#" || (len(kinds) > 0 && !slices.Contains(kinds, kind)) {
			continue
		}
		b, err := hex.DecodeString(data)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, b)
	}
	if len(out) == 0 {
		tb.Fatalf("no recorded datagrams of %v", kinds)
	}
	return out
}

func FuzzParseReply(f *testing.F) {
	for _, a := range answersOf(f) {
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		r, err := nfnetlink.ParseReply(msg)
		if err != nil {
			return
		}
		if (r.Err() == nil) != (r.Errno == 0) {
			t.Errorf("got error %v of %+v", r.Err(), r)
		}
		b := twoRows()
		p := b.problem(r)
		if p.Op == "" || (p.Tag != 0 && p.Tag != 11 && p.Tag != 12) {
			t.Errorf("got problem %+v of %+v", p, r)
		}
		_ = (&CommitError{Table: "t", Problems: []Problem{p, p}}).Error()
	})
}

func FuzzEachMessage(f *testing.F) {
	const seq = 7 // of the recorded requests
	for _, a := range answersOf(f) {
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		total := 0
		eachMessage(data, seq, func(msg []byte) {
			total += len(msg) + nfnetlink.MessageHeaderLen
			_, _, _, _ = parseTable(msg), parseChain(msg), parseSet(msg), parseRow(msg, &Set{})
			_, _ = parseRuleID(msg)
			for _, family := range []Family{IPv4, IPv6, Inet} {
				_ = parseRule(family, msg).Text(family)
			}
		})
		if total > len(data) {
			t.Errorf("got %d bytes of messages in %d", total, len(data))
		}
	})
}

func FuzzRowAt(f *testing.F) {
	for _, a := range answersOf(f, "rows") {
		f.Add(a, 80)
		f.Add(a, 0)
	}
	b := NewBatch(&Table{Family: IPv4, Name: "t"})
	for _, s := range goldenSets(IPv4) {
		if s.Key.String() == "ipv4_addr" {
			for range 3 {
				b.AddRow(Row{Set: s, Key: Tuple{n: 4}, Data: Tuple{n: uint8(s.Data.Size())}})
			}
			b.closeRows()
			_, msg, _ := b.messageOf(b.lastSeq())
			f.Add(msg, len(msg)-8)
		}
	}
	f.Fuzz(func(t *testing.T, msg []byte, offset int) {
		row, ok := rowAt(msg, offset)
		if !ok {
			return
		}
		if row.from < nfnetlink.HeaderLen || row.to <= row.from || row.to > len(msg) {
			t.Errorf("got row from %d to %d of %d bytes", row.from, row.to, len(msg))
		}
		if len(rowsIn(msg)) > 1 && (offset < row.from || offset >= row.to) {
			t.Errorf("got row from %d to %d for offset %d", row.from, row.to, offset)
		}
	})
}

func TestRecordedAnswers(t *testing.T) {
	for _, a := range answersOf(t, "ack") {
		if r, err := nfnetlink.ParseReply(a); err != nil || r.Errno != 0 || r.Seq != 10 {
			t.Errorf("acknowledgement: got %+v, %v", r, err)
		}
	}
	for _, a := range answersOf(t, "refusal") {
		if r, err := nfnetlink.ParseReply(a); err != nil || r.Errno != unix.ENOENT || (r.Seq != 2 && r.Seq != 3) {
			t.Errorf("refusal: got %+v, %v", r, err)
		}
	}
	var chains, rules []string
	explained := 0
	for _, a := range answersOf(t, "answer") {
		_, err := eachMessage(a, 7, func(msg []byte) {
			switch nfnetlink.Message(a).Type() & 0xff {
			case unix.NFT_MSG_NEWCHAIN:
				chains = append(chains, parseChain(msg).Name)
			case unix.NFT_MSG_NEWRULE:
				rules = append(rules, parseRule(IPv4, msg).Target())
			}
		})
		if err != nil && strings.HasSuffix(err.Error(), "Attribute failed policy validation") {
			explained++
		}
	}
	if got, want := strings.Join(chains, " "), "one two base one two base"; got != want {
		t.Errorf("got chains %s, want %s", got, want)
	}
	if got, want := strings.Join(rules, ","), ",one,,,one,"; got != want {
		t.Errorf("got targets of rules %q, want %q", got, want)
	}
	if explained != 2 {
		t.Errorf("got %d explained errors, want 2", explained)
	}
}
