// Package notation writes what the kernel stores about nf_tables as the nft
// program does.
//
// It owns what the kernel stores without interpreting it, because only the
// nft program reads it: the numbers of data types ([Type], [Fields]), and user
// data with comments. It also owns the text of values, verdicts and rules, and
// the names of header fields. It does not own tables, sets or chains, and it
// does not communicate with the kernel: see package nft, which imports it.
package notation
