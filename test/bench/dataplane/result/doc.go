// Package result holds the figures of the benchmark, computes them from samples,
// and writes them as JSON, as a table and as plots. It measures nothing. Times
// are in seconds.
package result
