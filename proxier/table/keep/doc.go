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
// (update.go), written in one order (write.go). If the kernel may not have what
// was committed, for example after a lost answer, Sync writes everything in one
// transaction, while packets continue to use the old rows (rewrite.go).
//
// Two pure functions decide what follows a failure: fate.after for an owner
// (fate.go), attempt.next for the attempt to write (attempt.go).
//
// Check verifies the table after commits of other programs (verify.go), then
// compares every row, a few at a time (scrub.go), and repairs what they find
// (repair.go).
package keep
