// Package eject decides which endpoints of TCP service ports get no new
// connections because they answer nothing. Its words and defaults are those of
// Envoy's outlier detection where they fit.
//
// A [Detector] gets what others observed: the attempts of clients that have no
// answer, the results of probes, the connections that an endpoint answered, and
// the endpoints that a service port uses. It answers which probes, looks and
// walks it needs, and which endpoints are ejected. The state of an endpoint of
// a service port:
//
//		watched ─► suspect ─► probed ─► lost ─► ejected ─► returning ─► on trial
//		                                  ▲                                │
//		                                  └────────────────────────────────┘
//
//	  - It is watched from its first unanswered attempt on.
//	  - Two attempts in ten seconds, or in two walks that are further apart, make
//	    it a suspect. The connections that it has answered are remembered
//	    ([Orders].Looks), with their clients.
//	  - It is probed twice. Another endpoint of the service port, the control, is
//	    probed, too, unless one answered a moment ago. The answer of another
//	    suspect counts as one. Without any, the node's own network may drop all
//	    probes: the service port is blind for a while, and nobody is ejected.
//	  - Both probes are lost. Only attempts of clients that the endpoint has
//	    answered before are evidence, or all if it has answered a probe. If it
//	    has answered nobody, attempts of clients are that the control has
//	    answered, which a further look shows. It is observed for as long as
//	    answers to other clients would take to come. A second look follows. If
//	    the endpoint has answered any client since the first one, it is alive.
//	    If this node cannot resolve its link-layer address, all attempts are
//	    evidence, and it is not observed.
//	  - Otherwise it is ejected. It is probed again, and an answer ends the
//	    ejection.
//	  - At the end of the ejection, a look follows, and it is on trial: it is used
//	    again, because a network policy may drop the probes. One try that is
//	    evidence ejects it again, for twice as long. An answer to a probe, or a
//	    minute without evidence, ends the trial. While its link-layer address is
//	    unresolved, the ejection is extended instead.
//
// The identity of an endpoint contains the service port: evidence of a Service
// never ejects an endpoint of another one. How many endpoints of a service port
// may be ejected, package ruleset decides when it makes the plan.
//
// The package performs no I/O and has no clock: the caller passes the time.
package eject
