package tour

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

func answer(server, source string) lab.Result {
	return lab.Result{Outcome: lab.Answered, Answer: lab.Answer{Server: server, Source: netip.MustParseAddrPort(source)}}
}

func ended(outcome lab.Outcome) lab.Result { return lab.Result{Outcome: outcome} }

func tallyOf(results ...lab.Result) tally {
	t := newTally()
	for _, r := range results {
		t.add(r)
	}
	return t
}

func TestSpread(t *testing.T) {
	web1, web2 := answer("web-1", "10.0.0.1:1"), answer("web-2", "10.0.0.1:2")
	servers := []string{"web-1", "web-2", "web-10"}
	for _, test := range []struct {
		tally tally
		want  string
	}{
		{tallyOf(), "    0     0      0"},
		{tallyOf(web2, web1, web2), "    1     2      0"},
		{tallyOf(web2, ended(lab.Refused), web1, web2), "web-1 1, web-2 2, refused 1"},
		{tallyOf(web1, answer("other", "10.0.0.1:1")), "other 1, web-1 1"},
		{tallyOf(ended(lab.TimedOut), ended(lab.Refused), ended(lab.TimedOut)), "refused 1, timed out 2"},
	} {
		if got := test.tally.spread(servers); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestEnding(t *testing.T) {
	for _, test := range []struct {
		tally tally
		want  string
	}{
		{tallyOf(ended(lab.TimedOut), ended(lab.TimedOut)), "no answer"},
		{tallyOf(ended(lab.Refused)), "refused"},
		{tallyOf(ended(lab.Refused), ended(lab.TimedOut)), "refused 1, timed out 1"},
		{tallyOf(ended(lab.Refused), answer("web-1", "10.0.0.1:1")), "web-1 1, refused 1"},
	} {
		if got := ending(test.tally); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
