package nft_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
)

// logMessages returns the log of netlink messages from now to the end of the
// test, at the level of slog.
func logMessages(t testing.TB, level slog.Level) *bytes.Buffer {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &log
}

// Each message of a request and an answer is one line of the log.
func TestLogMessages(t *testing.T) {
	c := connect(t)
	b, s := newServices(t, c, nft.IPv4)
	log := logMessages(t, -10)
	b.Reset()
	b.AddChain(&nft.Chain{Name: "a", Rules: []nft.Rule{nft.NewRule(nft.Drop())}})
	b.AddRules(&nft.Chain{Name: "a", Rules: []nft.Rule{nft.NewRule(nft.Drop())}})
	b.AddRow(service(s, nft.IPv4, 1, "one"))
	b.AddRow(service(s, nft.IPv4, 2, "one"))
	b.DeleteChain("missing")
	refused(t, c.Commit(b))
	if _, err := c.Counters(&nft.Table{Family: nft.IPv4, Name: "lb"}); err != nil {
		t.Fatal(err)
	}
	const want = `
msg="Netlink request" type=NFNL_MSG_BATCH_BEGIN flags=REQUEST seq=1 length=N
msg="Netlink request" type=NFT_MSG_NEWCHAIN flags=REQUEST|CREATE seq=2 length=N table="ip lb" chain=a
msg="Netlink request" type=NFT_MSG_NEWRULE flags=REQUEST|CREATE|APPEND seq=3 length=N table="ip lb" chain=a
msg="Netlink request" type=NFT_MSG_NEWSETELEM flags=REQUEST|CREATE seq=4 length=N table="ip lb" set=services rows=2
msg="Netlink request" type=NFT_MSG_DELCHAIN flags=REQUEST|ACK seq=5 length=N table="ip lb" chain=missing
msg="Netlink request" type=NFNL_MSG_BATCH_END flags=REQUEST seq=6 length=N
msg="Netlink answer" type=NLMSG_ERROR flags="" seq=5 length=N err="no such file or directory" offset=N
`
	got := regexp.MustCompile(`(length|offset)=\d+`).ReplaceAllString(log.String(), "$1=N")
	if got = "\n" + got; !strings.HasPrefix(got, want) {
		t.Errorf("got%swant%s", got, want)
	}
	const dump = `msg="Netlink request" type=NFT_MSG_GETOBJ flags=REQUEST|DUMP seq=`
	if !strings.Contains(got, dump) || !strings.Contains(got, "type=NLMSG_DONE") {
		t.Errorf("got%swant a line with %s and one with NLMSG_DONE", got, dump)
	}
}

// The log has 50 messages of a transaction, and 50 of the answer.
func TestLogLimit(t *testing.T) {
	const chains = 1000
	c := connect(t)
	b := nft.NewBatch(&nft.Table{Family: nft.IPv4, Name: "t"})
	b.AddTable("")
	for i := range chains {
		b.DeleteChain(fmt.Sprint("chain-", i))
	}
	log := logMessages(t, -10)
	refused(t, c.Commit(b))
	begin, end := "Netlink request", "Omitted further netlink messages\" count=953\n"
	lines := strings.SplitAfter(log.String(), "\n")
	if len(lines) < 51 || !strings.Contains(lines[49], begin) || !strings.HasSuffix(lines[50], end) {
		t.Errorf("got %d lines:\n%s\nwant 50 requests and %s", len(lines), log, end)
	}
	if n := strings.Count(log.String(), "Netlink answer"); n != 50 {
		t.Errorf("got %d answers, want 50", n)
	}
	if !strings.HasSuffix(log.String(), fmt.Sprintf("count=%d\n", chains-50)) {
		t.Errorf("got\n%s\nwant %d omitted answers", log, chains-50)
	}
}

// A log that is off has no cost: a commit allocates only what it also allocates
// for its answer.
func TestLogOff(t *testing.T) {
	c := connect(t)
	log := logMessages(t, slog.LevelInfo)
	table := &nft.Table{Family: nft.IPv4, Name: "t"}
	b := nft.NewBatch(table)
	b.AddTable("")
	commit(t, c, b)
	if n := testing.AllocsPerRun(100, func() {
		if err := c.Commit(b); err != nil {
			t.Error(err)
		}
	}); n > 6 {
		t.Errorf("got %v allocations for a commit, want at most 6", n)
	}
	if log.Len() != 0 {
		t.Errorf("got log %s", log)
	}
}
