package top

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 1, 1, 12, 0, 7, 0, time.UTC)

func sample() *Snapshot {
	dead := Counts{Connections: 3, New: 1, Unanswered: 3, Ejected: 1, Changed: now.Add(-8 * time.Second)}
	web := Counts{Connections: 1200, Open: 1000, Opening: 3, Closing: 197, New: 12.34, Replies: 11.3}
	both := web
	both.Add(dead)
	db := Counts{Connections: 7, Open: 7, New: 20, Replies: 20, Changed: now.Add(-3 * time.Hour)}
	s := &Snapshot{Time: now, Sorted: "new", Selected: 3, Others: 2, ServicePorts: []ServicePort{
		{Name: "warehouse/inventory:http", Counts: both, Endpoints: []Endpoint{
			{Address: netip.MustParseAddrPort("[fd00:244:1::5]:8080"), Counts: web, Unused: "gone"},
			{Address: netip.MustParseAddrPort("10.244.2.5:8080"), Counts: dead},
		}},
		{Name: "shop/db", Counts: db},
	}}
	s.Total.Add(both)
	s.Total.Add(db)
	return s
}

// In a narrow terminal the names give way, then the last columns.
func TestPrint(t *testing.T) {
	for _, test := range []struct {
		layout Layout
		want   string
	}{
		{Layout{}, `
12:00:07  service ports: 3, connections: 1210, new/s: 33.3, replies/s: 31.3, unanswered: 3, ejected: 1, others: 2
SERVICE PORT              CONNECTIONS  OPEN  UNANSWERED  NEW/S  REPLIES/S  CHANGED  EJECTED
warehouse/inventory:http  1203         1000  3           13.3   11.3       8s ago   1
  [fd00:244:1::5]:8080    1200         1000  0           12.3   11.3       -        -  gone
  10.244.2.5:8080         3            0     3           1.0    0.0        8s ago   yes
shop/db                   7            7     0           20.0   20.0       3h ago   -
1 more service ports
`},
		{Layout{Wide: true}, `
12:00:07  service ports: 3, connections: 1210, new/s: 33.3, replies/s: 31.3, unanswered: 3, ejected: 1, others: 2
SERVICE PORT              CONNECTIONS  OPEN  OPENING  CLOSING  UNANSWERED  NEW/S  REPLIES/S  CHANGED  EJECTED
warehouse/inventory:http  1203         1000  3        197      3           13.3   11.3       8s ago   1
  [fd00:244:1::5]:8080    1200         1000  3        197      0           12.3   11.3       -        -  gone
  10.244.2.5:8080         3            0     0        0        3           1.0    0.0        8s ago   yes
shop/db                   7            7     0        0        0           20.0   20.0       3h ago   -
1 more service ports
`},
		{Layout{Width: 88, Height: 5}, `
12:00:07  service ports: 3, connections: 1210, new/s: 33.3, replies/s: 31.3, unanswered:
SERVICE PORT           CONNECTIONS  OPEN  UNANSWERED  NEW/S  REPLIES/S  CHANGED  EJECTED
…house/inventory:http  1203         1000  3           13.3   11.3       8s ago   1
  …d00:244:1::5]:8080  1200         1000  0           12.3   11.3       -        -  gone
… 3 more lines
`},
		{Layout{Width: 30, Height: 4}, `
12:00:07  service ports: 3, co
SERVICE PORT      CONNECTIONS 
…/inventory:http  1203        
… 4 more lines
`},
	} {
		var b bytes.Buffer
		test.layout.Print(&b, sample())
		if got := "\n" + b.String(); got != test.want {
			t.Errorf("%+v: got %s\nwant %s", test.layout, got, test.want)
		}
	}
}

// A column has refusals if there are any. If they are not counted, a line says
// why.
func TestPrintRefusals(t *testing.T) {
	s := sample()
	s.ServicePorts = s.ServicePorts[1:]
	s.Total.Ejected, s.Others = 0, 0
	s.ServicePorts[0].Refused, s.Total.Refused, s.RefusalsUnknown = 2.5, 2.5, "on one node"
	var b bytes.Buffer
	Layout{Nodes: true}.Print(&b, s)
	const want = `
12:00:07  service ports: 3, connections: 1210, new/s: 33.3, replies/s: 31.3, unanswered: 3, refused/s: 2.5
SERVICE PORT  NODE  CONNECTIONS  OPEN  UNANSWERED  NEW/S  REPLIES/S  REFUSED/S  CHANGED  EJECTED
shop/db             7            7     0           20.0   20.0       2.5        3h ago   -
REFUSED/S is unknown: on one node
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestSort(t *testing.T) {
	for key, want := range map[string]string{
		"connections": "warehouse/inventory:http shop/db", "open": "warehouse/inventory:http shop/db",
		"new":     "shop/db warehouse/inventory:http",
		"replies": "shop/db warehouse/inventory:http", "refused": "shop/db warehouse/inventory:http",
		"unanswered": "warehouse/inventory:http shop/db", "changed": "warehouse/inventory:http shop/db",
		"ejected": "warehouse/inventory:http shop/db", "name": "shop/db warehouse/inventory:http",
	} {
		s := sample()
		Sort(s.ServicePorts, key)
		var names []string
		for _, p := range s.ServicePorts {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
	if got := len(Keys()); got != 9 {
		t.Errorf("got %d keys, want those of this test", got)
	}
}

// The snapshots of two nodes are one table, in the order that both have.
func TestMerge(t *testing.T) {
	a, b := sample(), sample()
	b.ServicePorts = b.ServicePorts[1:]
	b.Time = now.Add(time.Second)
	var text bytes.Buffer
	Layout{Nodes: true}.Print(&text, Merge(map[string]*Snapshot{"a": a, "b": b}))
	const want = `
12:00:08  service ports: 2, connections: 2420, new/s: 66.7, replies/s: 62.6, unanswered: 6, ejected: 2, others: 4
SERVICE PORT              NODE  CONNECTIONS  OPEN  UNANSWERED  NEW/S  REPLIES/S  CHANGED  EJECTED
shop/db                   a     7            7     0           20.0   20.0       3h ago   -
shop/db                   b     7            7     0           20.0   20.0       3h ago   -
warehouse/inventory:http  a     1203         1000  3           13.3   11.3       9s ago   1
  [fd00:244:1::5]:8080    a     1200         1000  0           12.3   11.3       -        -  gone
  10.244.2.5:8080         a     3            0     3           1.0    0.0        9s ago   yes
`
	if got := "\n" + text.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
