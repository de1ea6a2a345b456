// Package nft writes tables of nftables through netlink: a program of chains and rules that changes rarely, and sets and maps
// whose rows change all the time.
//
// It is made for programs that keep one table of their own in step with something else, such as a service proxy, a firewall, an
// address translator. A change of rows is encoded without allocating, and carried out in one transaction:
//
//	Table, Set, Chain, Rule          what is to be there
//	  │              Row             the elements of sets and maps
//	  │               │
//	  ▼               ▼
//	Batch: AddProgram, AddRow, DeleteRow, …    netlink messages
//	  │
//	  ▼
//	Conn.Commit ─────────► kernel    all of it or nothing
//	  ▲                       │
//	  └─ nil, CommitError, ErrGeneration, ErrUnknownOutcome
//
//	Conn.Chains, Sets, Rules, …      what is there
//	Table.Fprint                     the same table as a file for nft -f
//
// # A sample
//
//	services := &nft.Set{Name: "services", Key: nft.Types(nft.TypeIPv4Addr, nft.TypeInetProto, nft.TypeInetService), Verdicts: true}
//	vip := []nft.Expr{nft.Daddr(nft.IPv4), nft.L4Proto(), nft.ThDport()}
//	table := &nft.Table{
//		Family: nft.IPv4, Name: "lb", Sets: []*nft.Set{services},
//		Chains: []*nft.Chain{
//			{Name: "refuse", Rules: []nft.Rule{nft.NewRule(nft.Reject(nft.IPv4))}},
//			{Name: "input", Hook: &nft.Hook{Type: nft.TypeFilter, Point: nft.Input}, Rules: []nft.Rule{nft.NewRule(nft.VMap(services, vip...))}},
//		},
//	}
//	conn, err := nft.Open()
//	…
//	b := nft.NewBatch(table)
//	b.AddProgram()
//	b.AddRow(nft.Row{Set: services, Key: nft.Tuple{}.Addr(addr).Proto(unix.IPPROTO_TCP).Port(80), Verdict: nft.VerdictGoto("refuse")})
//	err = conn.Commit(b)
//
// # What the package owns, and what not
//
// It owns the messages: how tables, sets, rows, chains and rules are encoded, which message an error belongs to, and the
// user data beside them from which the nft program prints them. It knows the families ip and ip6, and the statements that
// translating and filtering connections by their addresses takes; [Raw] makes others of the expressions of
// github.com/google/nftables/expr.
//
// It does not remember what was committed, nor compare it with what is to be there, nor watch for changes of other programs: it only
// gives the means, Batch.Expect and what Conn reads. It does not read rows back: that takes the kernel time that grows with the
// square of their number.
//
// # Transactions
//
// The kernel carries out all of a batch or nothing, in the order in which it was added. Packets see all of it or nothing,
// except that a packet which is on its way through the rules may have seen sets before and see them after. A batch has no
// limit of its own: 300,000 rows take about half a second. Within a batch, a row can be deleted and added
// again with other data, and rules may refer to chains and sets that were added before them.
//
// Every transaction moves the generation of the ruleset by one, that of all tables in the network namespace together. Batch.Expect
// makes a transaction depend on it. What one call of Conn.Chains and the like returns is of one generation.
//
// # Errors
//
// A [*CommitError] says why the kernel refused a transaction, with a [Problem] for every message that it refused:
//
//	commit table ip lb: delete element services 10.96.0.10 . tcp . 80: no such file or directory
//
// It unwraps to error numbers (errors.Is(err, unix.ENOENT)), and Problem.Tag is what Batch.Tag said about the culprit. What a batch cannot
// say at all, such as a row that has other fields than its set, is refused the same way, without asking the kernel.
//
// [ErrGeneration] says that somebody else committed something meanwhile, and nothing was carried out. After [ErrUnknownOutcome] nobody
// knows: look, or write everything anew. After any other error nothing was carried out.
//
// # Limits
//
//   - Keys and data have at most 5 fields and 64 bytes; a field takes a multiple of 4 bytes.
//   - Ranges are possible in the last field of a key.
//   - Comments are cut to 127 bytes. Quotation marks in them become apostrophes, as nft has no way to write them.
//   - Names begin with a letter, _ or ., have letters, digits and _ . / - only, at most 255, and must not be words of nft's language, such
//     as `ip` or `accept`: the kernel would take others, but nft could not load what it lists.
//   - Linux 5.10 or later. The tests run on 5.10, 6.1, 6.12 and 6.18.
//   - What is written lists with nft 1.0.6 or later, and the listing loads again. Flags and user data are those that nft 1.0.6 writes,
//     byte by byte, which later versions read; what those write makes 1.0.6 crash.
//   - A transaction is sent as one datagram. Without CAP_NET_ADMIN in the initial user namespace it can't be larger than twice
//     net.core.wmem_max.
//
// # Goroutines
//
// A Conn and a Batch each belong to one goroutine at a time. Tables, sets, chains, rules and rows are plain values that are only
// read; they must not be modified while a batch refers to them. A Conn belongs to the network namespace of the thread that called Open,
// and can be used from any other.
//
// # Sources
//
// The messages are those of the kernel's linux/netfilter/nf_tables.h, nfnetlink.h and netlink.h. The user data is that of libnftnl
// (udata.h) and of nft's typeof declarations; data types are numbered as in nft's datatype.h. None of these is documented elsewhere: the
// tests compare with recordings of nft 1.0.6, and with what nft lists.
package nft
