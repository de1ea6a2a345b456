package table

// observed is what was found out about changes of the table by other programs.
type observed struct {
	generation *generation // shared by the Tables of a proxy
	// seen is generation.foreign when the ruleset was last read, verified that
	// of the last verification.
	seen, verified int
	structure      *structure // of the table as it was committed
	rules          ruleIDs    // of the chains of the program, the balancers, and chains that the scrubber compared
	scrubber       scrubber
	repairs        repairs
	monitor        monitor
}

func newObserved(shared *generation) observed {
	return observed{generation: shared, repairs: repairs{count: make(map[DamageKind]int)}}
}

// isVerified reports whether no other program committed between the last
// verification and the last time that the ruleset was read.
func (o *observed) isVerified() bool { return o.verified == o.seen }
