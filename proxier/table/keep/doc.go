// Package keep keeps an nftables table in the kernel equal to what a Source
// wants, and knows nothing of what the table is for.
//
// A Keeper has three kinds of state:
//
//	wanted     what the Source returns when the Keeper asks it
//	committed  what the kernel has, as of the last commit that succeeded
//	observed   what was found out about changes by other programs
//
// Sync asks for the contents of the owners that changed, and commits the
// difference between their committed and their new rows in one transaction
// (update.go), written in one order (write.go). If the kernel may not have what
// was committed, for example after a lost answer, Sync writes everything in one
// transaction, while packets continue to use the old rows (rewrite.go).
//
// What follows a failure is decided by two pure functions: for an owner by
// fate.after (fate.go), for the attempt to write by attempt.next (attempt.go).
//
// Check verifies the table after commits of other programs (verify.go), reads
// every row now and then (scrub.go), and repairs what it finds (repair.go).
package keep
