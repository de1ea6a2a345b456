package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/bench/stage/stagetest"
)

// TestDataplane runs a short form of the benchmark and checks that no figure is
// missing or implausible.
func TestDataplane(t *testing.T) {
	d := newDataplane(stagetest.Repository)
	d.programs.Product = stagetest.BuildProduct(t)
	d.connections, d.throughput = 20, 5*time.Millisecond
	all := strings.Join([]string{stage.Upstream, stage.IPTables, stage.Product}, ",")
	files := strings.Fields("dataplane.txt latency.svg rate.svg affinity.svg guarded.svg established.svg requests.svg")
	r := stagetest.Run(t, "dataplane", about, d, files, "--services=20,40", "--subjects="+all, "--instances=1",
		"--rounds=2")
	if len(r.Tables) != 2*len(traffics()) {
		t.Errorf("got %d tables, want %d", len(r.Tables), 2*len(traffics()))
	}
	for _, table := range r.Tables {
		rows := 2 + 6 // without a proxy, and three proxies with two numbers of Services
		special := slices.ContainsFunc(traffics(), func(c traffic) bool {
			return c.special() && strings.HasPrefix(table.Title, c.name)
		})
		if special {
			rows = 6
		}
		if len(table.Rows) != rows {
			t.Errorf("%s: got %d rows, want %d", table.Title, len(table.Rows), rows)
		}
		for _, row := range table.Rows {
			checkRow(t, table.Title, row, special)
		}
	}
}

func checkRow(t *testing.T, title string, row report.Row, special bool) {
	t.Helper()
	found := map[string]report.Figure{}
	for _, f := range row {
		found[f.Name] = f
		if f.Unit == report.Seconds && (f.Value < 1e-6 || f.Value > 0.1) {
			t.Errorf("%s, %s: got %s %s", title, row[0], f.Name, f)
		}
	}
	_, static := found["to static"]
	_, plain := found["to plain"]
	if found["n"].Value != 2*20 || !static || plain != special {
		t.Errorf("%s, %s: got %v", title, row[0], row)
	}
	if found["conn/s"].Value+found["requests/s"].Value <= 0 && !strings.Contains(title, "new client") {
		t.Errorf("%s, %s: got no rate in %v", title, row[0], row)
	}
}

// TestAdd adds two rounds of two instances; the second round takes twice as
// long.
func TestAdd(t *testing.T) {
	d := newDataplane("")
	d.wanted = regexp.MustCompile("")
	v, c := variant{"nftproxy", 100}, scenario{fromPod, newTCP}
	d.add(v, c, []measurement{{1, report.Sample{24, 24, 90}, 2000, 0}, {0, report.Sample{22, 22, 22}, 1000, 1}})
	d.add(v, c, []measurement{{0, report.Sample{44, 44, 44}, 500, 0}, {1, report.Sample{44, 48, 48}, 1000, 2}})
	d.subjects = []*subject{{variant: v}}
	static := &series{rounds: report.Sample{20, 40}, rates: report.Sample{3000, 1500}}
	d.results[key{variant{rules: staticRule}, c}] = static
	r := new(report.Report)
	d.fill(r)
	var got []string
	for _, f := range r.Tables[len(traffics())].Rows[0][1:] {
		got = append(got, f.Name+" "+f.String())
	}
	want := "p50 44 s (22 to 44), p90 48 s, instances 22 s (22 to 44), to static +10.0 % (+10.0 to +10.0), " +
		"conn/s 1000 (500 to 2000), conn/s to static -50.0 % (-50.0 to -50.0), n 12, late 3"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %s\nwant %s", strings.Join(got, ", "), want)
	}
}
