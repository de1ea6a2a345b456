// Package result holds the figures of a comparison of service proxies, and shows them: as JSON, as a table and as plots. It measures
// nothing. Times are in seconds, memory in bytes.
package result
