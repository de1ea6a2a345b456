// Package nft programs nftables through netlink, without the nft program.
//
// It is made for programs that own a table and keep it in step with other
// state: a service proxy, a firewall, an address translator. Such a table has
// chains and rules that rarely change, and sets whose rows change all the
// time.
//
// # Concepts
//
//   - A [Table] holds sets and chains. Its sets, chains and rules are the
//     program of the table.
//   - A [Set] holds rows that rules look up. A set with data is a map; a map
//     whose data is a verdict is a verdict map.
//   - A [Row] is one element of a set: a key, and data in maps. Rows are not
//     part of the program.
//   - A [Chain] holds rules. A [Rule], written or found, is a list of
//     expressions. It is made of statements: each [Statement] matches or
//     changes a packet, or ends the rule with a [Verdict]. An [Expr] loads a
//     value of the packet that rules look up.
//   - A [Batch] collects changes. [Conn.Commit] applies them in one
//     transaction.
//   - The generation numbers the transactions of a network namespace, of all
//     programs and tables.
//
// Changes go to the kernel, and the contents of the kernel can be read:
//
//	Table (sets, chains, rules)     Row
//	  │                              │
//	  └──────────────┬───────────────┘
//	                 ▼
//	Batch: AddProgram, AddRow, DeleteRow, …
//	                 │
//	                 ▼
//	Conn.Commit ───────────► kernel ───────────► Conn.Chains, Sets, Rules, …
//	  └─► nil, CommitError, ErrGeneration, ErrUnknownOutcome
//
// [Table.Fprint] writes the same table as a file for nft -f, and [Rule.Text]
// writes a rule, of any program, as nft lists it.
//
// # Example
//
// This program rejects packets whose destination has a row in a verdict map.
// Rows can be added and deleted later without changing a rule:
//
//	package main
//
//	import (
//		"log"
//		"net/netip"
//
//		"golang.org/x/sys/unix"
//
//		"github.com/nftproxy/nftproxy/nft"
//	)
//
//	func main() {
//		services := &nft.Set{
//			Name:     "services",
//			Key:      nft.Types(nft.TypeIPv4Addr, nft.TypeInetProto, nft.TypeInetService),
//			Verdicts: true,
//		}
//		destination := []nft.Expr{nft.Daddr(nft.IPv4), nft.L4Proto(), nft.ThDport()}
//		table := &nft.Table{
//			Family: nft.IPv4,
//			Name:   "lb",
//			Sets:   []*nft.Set{services},
//			Chains: []*nft.Chain{
//				{Name: "refuse", Rules: []nft.Rule{nft.NewRule(nft.Reject(nft.IPv4))}},
//				{
//					Name:  "input",
//					Hook:  &nft.Hook{Type: nft.ChainTypeFilter, Point: nft.Input},
//					Rules: []nft.Rule{nft.NewRule(nft.VMap(services, destination...))},
//				},
//			},
//		}
//
//		conn, err := nft.Open()
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer conn.Close()
//
//		addr := netip.MustParseAddr("192.0.2.10")
//		batch := nft.NewBatch(table)
//		batch.AddProgram()
//		batch.AddRow(nft.Row{
//			Set:     services,
//			Key:     nft.Tuple{}.Addr(addr).Proto(unix.IPPROTO_TCP).Port(80),
//			Verdict: nft.VerdictGoto("refuse"),
//		})
//		if err := conn.Commit(batch); err != nil {
//			log.Fatal(err)
//		}
//	}
//
// The nft program lists the result:
//
//	table ip lb {
//		map services {
//			type ipv4_addr . inet_proto . inet_service : verdict
//			elements = { 192.0.2.10 . tcp . 80 : goto refuse }
//		}
//
//		chain refuse {
//			reject
//		}
//
//		chain input {
//			type filter hook input priority filter; policy accept;
//			ip daddr . meta l4proto . th dport vmap @services
//		}
//	}
//
// # Scope
//
// The package encodes tables, sets, rows, chains and rules as netlink
// messages, assigns the errors of the kernel to the changes that caused them,
// and reads objects back. Package notation has the user data from which the nft
// program lists a set as it was declared, and the text of rules. The package
// supports the families ip and ip6, and the statements that match and translate
// connections by their addresses.
//
// The package does not store what was committed, compare it with the desired
// state, or watch the ruleset. Callers can do so with [Batch.Expect] and the
// methods of [Conn] that read.
//
// # Traces
//
// A Tracer of package notify receives the steps of packets for which a rule has
// [SetTrace], in the tables of all programs. A table with Owned ends with its
// connection, so that such rules do not stay.
//
// # Transactions
//
// The kernel applies all changes of a batch or none, in the order in which
// they were added. Packets see all changes or none. The exception is a packet
// that is inside the rules during the commit: its lookups before the commit
// see the old rows, its later ones the new rows.
//
// A batch has no size limit of its own: 300,000 rows take about half a
// second. It can delete a row and add it again with other data. Its rules may
// refer to chains and sets that it added before them.
//
// Each transaction increments the generation. [Batch.Expect] makes a
// transaction depend on a generation. All results of one call of
// [Conn.Chains], [Conn.Sets] and [Conn.Rules] belong to one generation.
//
// # Errors
//
// A [*CommitError] is returned for a refused transaction, with one [Problem]
// for each refused change:
//
//	commit table ip lb: delete element services 10.96.0.10 . tcp . 80: no such file or directory
//
// It unwraps to error numbers, as in errors.Is(err, unix.ENOENT). Problem.Tag
// is the tag that [Batch.Tag] set for the change. Changes that cannot be
// encoded, such as a row whose key does not match its set, are refused in the
// same way before anything is sent.
//
// [ErrGeneration] is returned if another program committed and nothing was
// applied. After [ErrUnknownOutcome] the caller must read the table or write
// it again. After any other error nothing was applied.
//
// # Limits
//
//   - A key or data has at most 5 fields and 64 bytes. Each field takes a
//     multiple of 4 bytes.
//   - Comments are cut to 127 bytes. Quotation marks in them become
//     apostrophes because nft has no syntax for them.
//   - Names begin with a letter, _ or . and contain only letters, digits, _,
//     ., / and -, at most 255 bytes. They must not be keywords of nft, such
//     as ip or accept: the kernel accepts them, but nft cannot load its own
//     listing.
//   - Linux 5.10 or later is required. The tests run on Linux 5.10, 6.1, 6.12
//     and 6.18.
//   - nft 1.0.2 or later lists the tables, and loads its listing again, unless
//     a key of a set has a number of numgen: nft 1.0.2 aborts there.
//     Flags and user data equal the output of nft 1.0.6 byte by byte. Later
//     versions read them, whereas user data of later versions makes nft 1.0.6
//     crash.
//   - A transaction is sent as one datagram. Without CAP_NET_ADMIN in the
//     initial user namespace it is limited to twice net.core.wmem_max.
//
// # Concurrency
//
// A [Conn] or a [Batch] must not be used by several goroutines at the same
// time. Tables, sets, chains, rules and rows are only read; they must not be
// modified while a batch refers to them. A Conn belongs to the network
// namespace of the thread that called [Open], and works from any thread.
//
// # Sources
//
// Messages are defined by the kernel headers linux/netfilter/nf_tables.h,
// nfnetlink.h and netlink.h. User data is defined by udata.h of libnftnl; data
// types are numbered by datatype.h of nft. No other documentation of these
// formats exists. The tests therefore compare messages with recordings of nft
// 1.0.6, and tables with the listing of nft.
package nft
