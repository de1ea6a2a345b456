// Package keep keeps an nftables table in the kernel equal to what a Source
// wants. It does not depend on the purpose of the table.
//
// A Keeper has three kinds of state:
//
//	wanted     what the Source returns when the Keeper asks it
//	committed  what the kernel has, as of the last commit that succeeded
//	observed   changes by other programs that the Keeper detected
//
// Sync asks for the contents of the owners that changed, and commits the
// difference between their committed and their new rows in one transaction
// (update.go), written in one order (write.go); a large change of one owner has
// stages (stages.go). If the kernel may not have what was committed, for
// example after a lost answer, Sync compares everything and writes what
// differs, in steps (adopt.go), or everything in one transaction, while packets
// continue to use the old rows (rewrite.go).
//
// Two pure functions decide what follows a failure: fate.after for an owner,
// and attempt.next for the attempt to write (failure.go).
//
// Check verifies the table after commits of other programs (verify.go), then
// compares every row, a few at a time (scrub.go), and repairs what they find,
// and nothing else (repair.go).
package keep
