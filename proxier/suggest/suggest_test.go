package suggest_test

import (
	"testing"

	"github.com/nftproxy/nftproxy/proxier/suggest"
)

func TestClosest(t *testing.T) {
	names := []string{"Service", "EndpointSlice", "Node", "ServiceCIDR"}
	for word, want := range map[string]string{
		"service": "Service", "Servce": "Service", "Sevrice": "Service", "Services": "Service", "Serivces": "Service",
		"Servant": "", "ServiceCDIR": "ServiceCIDR", "ServiceAccount": "", "EndpointsSlices": "EndpointSlice",
		"Endpoints": "", "Nodes": "Node", "Pod": "", "Role": "", "": "", "Deployment": "",
	} {
		if got, ok := suggest.Closest(word, names...); got != want || ok != (want != "") {
			t.Errorf("Closest(%q): got %q, %v, want %q", word, got, ok, want)
		}
	}
}
