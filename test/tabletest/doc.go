// Package tabletest supports tests of the tables in the kernel: a network
// namespace for each test, the nft program, sample Services, and a Kernel
// that injects faults.
package tabletest
