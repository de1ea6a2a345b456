package rendezvous_test

import (
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/proxier/rendezvous"
)

func Example() {
	endpoints := []rendezvous.Endpoint{
		{AddrPort: netip.MustParseAddrPort("10.244.1.5:8080"), Weight: 3},
		{AddrPort: netip.MustParseAddrPort("10.244.2.5:8080"), Weight: 1},
	}
	fmt.Println(rendezvous.Table(endpoints, 16))
	// Output: [0 0 0 0 0 0 1 1 1 1 0 0 0 0 0 0]
}
