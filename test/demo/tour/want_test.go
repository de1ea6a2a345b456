package tour

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

func TestWant(t *testing.T) {
	hostOf := func(addr netip.Addr) string {
		return map[string]string{"10.0.0.1": "node1", "10.0.0.9": "client"}[addr.String()]
	}
	web1, web2 := answer("web-1", "10.0.0.1:1"), answer("web-2", "10.0.0.1:2")
	asClient := answer("web-2", "10.0.0.9:2")
	refused, lost := ended(lab.Refused), ended(lab.TimedOut)
	both := []string{"web-2", "web-1"}
	for _, test := range []struct {
		name string
		want want
		got  tally
		ok   bool
	}{
		{"spread over both", spreadOver(both, "node1"), tallyOf(web1, web2), true},
		{"one never answered", spreadOver(both, "node1"), tallyOf(web1, web1), false},
		{"somebody else answered", spreadOver(both, "node1"), tallyOf(web1, web2, answer("web-3", "10.0.0.1:1")), false},
		{"one was refused", spreadOver(both, "node1"), tallyOf(web1, web2, refused), false},
		{"nobody answered", spreadOver(both, "node1"), tallyOf(), false},
		{"wrong source", spreadOver(both, "client"), tallyOf(web1, web2), false},
		{"wrong source once", spreadOver(both, "node1"), tallyOf(web1, web2, asClient), false},
		{"sticky", alwaysOneOf(both, "node1"), tallyOf(web1, web1), true},
		{"not sticky", alwaysOneOf(both, "node1"), tallyOf(web1, web2), false},
		{"sticky to somebody else", alwaysOneOf(both, "node1"), tallyOf(answer("web-3", "10.0.0.1:1")), false},
		{"refused", noAnswer(lab.Refused), tallyOf(refused, refused), true},
		{"lost instead of refused", noAnswer(lab.Refused), tallyOf(lost), false},
		{"lost and refused", noAnswer(lab.TimedOut), tallyOf(lost, refused), false},
		{"answered once", noAnswer(lab.Refused), tallyOf(refused, web1), false},
		{"nothing tried", noAnswer(lab.Refused), tallyOf(), false},
	} {
		if err := test.want.check(test.got, hostOf); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
