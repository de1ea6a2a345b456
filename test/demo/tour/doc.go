// Package tour is the product tour: scenes that do something with the cluster of package stage, show what came of it, and
// check that it is as it should be.
//
//	scene ─► calls, streams (attempts to connect) ─► tally, account (pure) ─► expectation (pure) ─► table
//
// Each scene is a method of tour in a file of its own. What a scene expects stands in it in full: it is not worked out
// from the manifests, which would be a second proxy.
package tour
