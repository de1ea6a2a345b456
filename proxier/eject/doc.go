// Package eject decides which endpoints of TCP service ports get no new
// connections because they answer nothing. Its words and defaults are those of
// Envoy's outlier detection where they fit.
//
// A [Detector] gets what others observed: the attempts of clients that have no
// answer, the results of probes, the connections that an endpoint answered, and
// the endpoints that a service port uses. It answers which probes and looks it
// needs, and which endpoints are ejected. The state of an endpoint of a service
// port:
//
//		watched ─► suspect ─► probed ─► lost ─► ejected ─► watched
//
//	  - It is watched from its first unanswered attempt on.
//	  - Two attempts in ten seconds, or in two walks that are further apart, make
//	    it a suspect. The connections that it has answered are remembered
//	    ([Orders].Looks).
//	  - It is probed twice, and so is another endpoint of the service port, the
//	    control, unless one answered a moment ago. The answer of another suspect
//	    counts, too. Without any, the probes prove nothing, because a network
//	    policy or the node's own network may drop all of them: the service port
//	    is blind for a while, and nobody is ejected.
//	  - After both probes are lost, a second look follows. If the endpoint has
//	    answered any client since the first one, it is alive.
//	  - Otherwise it is ejected. It is probed again, and an answer ends the
//	    ejection. Each ejection without one is twice as long as the last one.
//
// The identity of an endpoint contains the service port: evidence of a Service
// never ejects an endpoint of another one. How many endpoints of a service port
// may be ejected, package ruleset decides when it makes the plan.
//
// The package performs no I/O and has no clock: the caller passes the time.
package eject
