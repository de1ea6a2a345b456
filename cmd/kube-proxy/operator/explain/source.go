package explain

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/nft"
)

// Table is the content of a table.
type Table interface {
	// BaseChain returns the name of the table's chain at a hook point.
	BaseChain(point nft.HookPoint) (string, error)
	// Rules returns the rules of a chain.
	Rules(chain string) ([]nft.Rule, error)
	// Set returns the description of a set.
	Set(name string) (*nft.Set, error)
	// Row returns the row of a set that a packet with this key finds. Its Set
	// is nil if there is none.
	Row(set *nft.Set, key nft.Tuple) (nft.Row, error)
}

// Routes are the routes of a node.
type Routes interface {
	// RouteType returns the type of the route to an address (RTN_LOCAL for the
	// addresses of this node).
	RouteType(addr netip.Addr) (uint32, error)
	// Interface returns the name of the interface of the route to an address.
	Interface(addr netip.Addr) (string, error)
}
