// Package result holds the figures of what rules cost new connections, computes them from samples, and shows them: as JSON, as a table and
// as plots. It measures nothing. Times are in seconds.
package result
