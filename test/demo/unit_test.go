package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab/listing"
)

func TestFlags(t *testing.T) {
	for argument, want := range map[string]string{
		"--colour": "unknown flag: --colour", "all": `unexpected argument "all"`, "-h": "--kube-proxy PROGRAM",
	} {
		var out strings.Builder
		code := run([]string{argument}, &out, &out)
		if (code == exitOK) != (argument == "-h") || !strings.Contains(out.String(), want) {
			t.Errorf("%s: got exit code %d and %q, want %q", argument, code, out.String(), want)
		}
	}
	if err := checkRequirements(1000, "sh"); err == nil || !strings.Contains(err.Error(), "run sudo make demo") {
		t.Errorf("got error %v without root", err)
	}
	if err := checkRequirements(0, "no/such/program"); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got error %v without kube-proxy", err)
	}
}

func TestCall(t *testing.T) {
	for _, test := range []struct {
		want, seen string
		got        tally
		ok         bool
	}{
		{"a,b", "node1", tally{counts{"a": 1, "b": 2}, counts{"node1": 3}}, true},
		{"a,b", "node1", tally{counts{"a": 1}, counts{"node1": 1}}, false},
		{"a,b", "node1", tally{counts{"a": 1, "b": 1, "c": 1}, counts{"node1": 3}}, false},
		{"a,b", "node1", tally{counts{"a": 1, "b": 1, "refused": 1}, counts{"node1": 2}}, false},
		{"a,b", "node1", tally{counts{"a": 1, "b": 1}, counts{"node1": 1, "client": 1}}, false},
		{"a,b", "node1", tally{}, false},
		{"one of a,b", "node1", tally{counts{"a": 2}, counts{"node1": 2}}, true},
		{"one of a,b", "node1", tally{counts{"a": 1, "b": 1}, counts{"node1": 2}}, false},
		{"one of a,b", "node1", tally{counts{"c": 1}, counts{"node1": 1}}, false},
		{"refused", "", tally{counts{"refused": 2}, nil}, true},
		{"refused", "", tally{counts{"timed out": 2}, nil}, false},
		{"refused", "", tally{counts{"refused": 1, "a": 1}, counts{"node1": 1}}, false},
	} {
		c := parseCall([]string{"client", "ClusterIP", "tcp", test.want, test.seen})
		if err := c.check("shop/web", [2]tally{test.got, test.got}); (err == nil) != test.ok {
			t.Errorf("%s: got error %v of %v, want ok %v", test.want, err, test.got, test.ok)
		}
	}
}

func TestEvent(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	for _, test := range []struct {
		name, before, after string
		first, then         string // answers, one every millisecond from 10; "then" is repeated
		want                int    // time when the event is in force; 0: it is not
		ok                  bool   // the answers are possible
	}{
		{"nothing added yet", "a", "a,b", "", "a", 0, false},
		{"added", "a", "a,b", "a,b", "a,b", 12, true},
		{"removed", "a,b", "a", "b,a,b", "a", 13, true},
		{"still there", "a,b", "a", "", "a,b", 0, true},
		{"to zero", "a", "refused", "a", "refused", 12, true},
		{"to zero, one lost", "a", "refused", "timed out", "refused", 12, false},
		{"from zero", "refused", "a", "refused", "a", 12, true},
		{"from zero, refused again", "refused", "a", "a,a,refused", "a", 11, false},
		{"replaced", "a", "b", "a", "b", 12, true},
		{"unchanged", "a", "a", "", "a", 10, true},
		{"unchanged, one refused", "a", "a", "refused", "a", 11, false},
		{"lossy", "", "a", "timed out,refused", "a", 13, true},
	} {
		e := &event{done: at(10), after: [2][]string{strings.Split(test.after, ",")}}
		if test.before != "" {
			e.before[0] = strings.Split(test.before, ",")
		}
		var attempts []attempt
		then := slices.Repeat(strings.Split(test.then, ","), settled+1)
		for i, answer := range append(strings.Split(test.first, ","), then...) {
			if answer != "" {
				attempts = append(attempts, attempt{start: at(10 + i), end: at(11 + i), answer: answer})
			}
		}
		since, seen := e.seenBy(0, attempts)
		if seen != (test.want != 0) || seen && !since.Equal(at(test.want)) {
			t.Errorf("%s: got in force %v since %d, want %d", test.name, seen, since.UnixMilli(), test.want)
		}
		e.inForce[0] = since
		if _, _, err := e.check(0, attempts); seen && (err == nil) != test.ok {
			t.Errorf("%s: got error %v, want ok %v", test.name, err, test.ok)
		}
	}
}

func TestParseListing(t *testing.T) {
	got := linesOf(listing.Parse("ip", `table ip kube-proxy {
	map m {
		type ipv4_addr : verdict
		elements = { 10.96.0.80 comment "shop/web:http" : goto c,
			     10.96.0.10 : goto c }
	}

	chain c {
		meta mark set 1
		dnat ip to ip daddr
	}
}
`))
	want := []string{
		"chain c { meta mark set 1", "chain c { dnat ip to ip daddr", "map m { type ipv4_addr : verdict",
		"map m: 10.96.0.10 : goto c", `map m: 10.96.0.80 comment "shop/web:http" : goto c`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestFindLines(t *testing.T) {
	for lines, ok := range map[string]bool{
		"map a: x 1,map a: x 2,map b: y": true, "map a: x 1": false, "map a: x 1,map a: x 3": false,
		"map a: x 1,map a: x 2,map a: x 3": false,
	} {
		tour := &tour{report: report{w: &strings.Builder{}}, lines: strings.Split(lines, ",")}
		tour.findLines(t.Context(), "map a: x", [][]string{{" 1"}, {" 2"}})
		if got := len(tour.failures) == 0; got != ok || tour.checks != 1 {
			t.Errorf("%s: got ok %v (%q), want %v", lines, got, tour.failures, ok)
		}
	}
}
