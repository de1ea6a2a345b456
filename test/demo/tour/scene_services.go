package tour

import (
	"context"
	"fmt"
	"strings"

	"github.com/nftproxy/nftproxy/test/demo/cluster"
	"github.com/nftproxy/nftproxy/test/demo/page"
)

// showServices lists what the manifests say.
func (t *tour) showServices(context.Context) error {
	t.page.Scene("The Services")
	t.page.Text("These Services are served, all of them in IPv4 and IPv6. They stand in %s, with their EndpointSlices, "+
		"the two Nodes and the ServiceCIDR.", t.stage.ManifestFolder())
	table := page.Table{Columns: []string{"SERVICE", "TYPE", "CLUSTER-IPS", "PORTS (:NODEPORT)", "EXTERNAL OR LB IPS"}}
	for _, s := range t.stage.Services {
		external := s.ExternalIPs
		if s.LoadBalancerIPs.IsValid() {
			external = s.LoadBalancerIPs
		}
		ports := portsOf(s)
		rows := max(2, len(ports))
		for i := range rows {
			cells := [][]string{{s.String()}, {s.Type}, addrsOf(s.ClusterIPs), ports, addrsOf(external)}
			table.Add(page.None, nth(cells, i)...)
		}
	}
	t.page.Table(table)
	var remarks []string
	for _, s := range t.stage.Services {
		words := s.Features
		if len(s.Endpoints) == 0 {
			words = append(words, "no endpoints")
		}
		if len(words) > 0 {
			remarks = append(remarks, fmt.Sprintf("%-14s %s", s, strings.Join(words, ", ")))
		}
	}
	t.page.Listing(remarks...)
	return nil
}

// portsOf lists the ports of a Service.
func portsOf(s *cluster.Service) []string {
	var ports []string
	for _, p := range s.Ports {
		text := fmt.Sprintf("%s %d", strings.ToUpper(p.Protocol), p.Port)
		if p.NodePort != 0 {
			text += fmt.Sprintf(":%d", p.NodePort)
		}
		ports = append(ports, text)
	}
	return ports
}

// addrsOf lists the addresses that there are.
func addrsOf(d cluster.Dual) []string {
	if !d.IsValid() {
		return nil
	}
	return []string{d.IPv4.String(), d.IPv6.String()}
}

// nth takes the nth line of every cell.
func nth(cells [][]string, n int) []string {
	var row []string
	for _, lines := range cells {
		cell := ""
		if n < len(lines) {
			cell = lines[n]
		}
		row = append(row, cell)
	}
	return row
}
