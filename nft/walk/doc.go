// Package walk evaluates the rules of an nftables table for a hypothetical
// packet.
//
// A [Walk] runs the expressions of the rules as the kernel does, from the
// beginning of a base chain until each [Path] ends with a verdict. It reads
// only the chains that the packet enters, and rows by key, so the time does not
// depend on the size of the table. The [Table] can be in the kernel ([Kernel]),
// or in memory before it is written.
//
// # Paths
//
// A rule can depend on something that the walk cannot compute. Then the path
// forks:
//
//   - Where the kernel draws a random number, there is a path for each number
//     that makes a difference, with its probability (Path.Share).
//   - Where a fact is not known, such as the state of a limit or an expression
//     that this package does not decode, one path continues as if the rule
//     matched, and one with the next rule. Path.Unknown names the fact.
//
// A program that walks its own table takes Path.Unknown as an error. A program
// that walks the tables of others takes such a path as possible.
//
// # Scope
//
// The packet is the first of a connection over IPv4 or IPv6, the answer, or a
// later one (see [Packet]). Facts about the machine, such as the type of a
// route, are answers of a [Host]. The walk changes nothing: it adds no row to
// a set, and assumes that sets to which rules add packets are not full.
//
// A walk covers the base chain at which it begins. The caller runs the base
// chains of several hooks and tables in their order, and applies the policy of
// the base chain and the translation of addresses between them.
package walk
