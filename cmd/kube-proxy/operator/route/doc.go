// Package route finds out whether the kernel of this node delivers a packet
// that the rules of a proxy sent to an endpoint, and the answer to it.
//
// A Survey asks the kernel for the route of both directions, as it routes a
// packet with a mark that arrives on an interface, for the settings of the
// interfaces, and for the neighbour. Decide is a pure function: it names one
// cause why the packet or its answer does not arrive, or none.
//
// The package owns all questions of the command nftproxy about routes and
// neighbours. It is not concerned with rules, and sends no packet.
package route
