// Package rendezvous computes hash tables of endpoints: for each row of a table
// the endpoint that serves the clients with this hash.
//
// The table of a list of endpoints depends on their addresses and weights only.
// All nodes, processes and versions compute the same one. If an endpoint is
// added or removed, few rows change, apart from those that it gets or had.
//
// The algorithm is weighted rendezvous hashing with a bound of the load. Each
// endpoint asks for a row at some points in time, which are as frequent as its
// weight is high. Rows and times are hashes of its address. The first endpoint
// that asks for a row gets it, unless the endpoint has as many rows as it may.
// So endpoints are not compared for each row, and a table of m rows costs about
// m·ln(m) steps for any number of endpoints.
//
// The package knows neither Services nor the kernel's hash function.
package rendezvous
