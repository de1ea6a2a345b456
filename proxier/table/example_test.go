package table_test

import (
	"bytes"
	"fmt"
	"log"
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// A program serves a list of backends without Kubernetes: connections to
// 192.0.2.80:80 go to three servers.
func Example() {
	tables, err := table.New(table.Config{}, nft.IPv4)
	if err != nil {
		log.Fatal(err)
	}
	t := tables[0]
	// To write the table to the kernel, call t.Setup here, as root.

	t.SetNode(&cluster.Node{Name: "gateway"})
	web := &cluster.Service{
		Name:        cluster.ServiceName{Namespace: "example", Name: "web"},
		Families:    []nft.Family{nft.IPv4},
		ExternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.80")},
		Ports:       []cluster.ServicePort{{Protocol: cluster.TCP, Port: 80}},
	}
	t.SetService(web)
	const source = "list"
	var endpoints []*cluster.Endpoint
	for _, backend := range []string{"10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:9090"} {
		addr := netip.MustParseAddrPort(backend)
		endpoints = append(endpoints, &cluster.Endpoint{
			EndpointKey: cluster.EndpointKey{Source: source, Addr: addr.Addr()},
			Ports:       []cluster.EndpointPort{{Protocol: cluster.TCP, Port: addr.Port()}},
			Ready:       true,
		})
	}
	t.SetEndpoints(web.Name, source, endpoints)
	// To make the changes effective, call t.Sync here and after later
	// changes. To repair the table after changes by other programs, call
	// t.Check regularly, from the same goroutine.

	var desired bytes.Buffer
	if err := t.Fprint(&desired); err != nil {
		log.Fatal(err)
	}
	_, rows, _ := strings.Cut(desired.String(), "map service-targets {")
	_, rows, _ = strings.Cut(rows, "elements = {\n")
	rows, _, _ = strings.Cut(rows, "}")
	for row := range strings.Lines(rows) {
		fmt.Println(strings.TrimSpace(row))
	}
	// Output:
	// 192.0.2.80 . tcp . 80 . 0:1 : 10.0.0.1 . 8080,
	// 192.0.2.80 . tcp . 80 . 0:2 : 10.0.0.2 . 8080,
	// 192.0.2.80 . tcp . 80 . 0:3 : 10.0.0.3 . 9090
}
