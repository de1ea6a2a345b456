package table

// observed is what was found out about changes of the table by other programs.
type observed struct {
	generation  *generation  // shared by the Tables of a proxy
	verified    int          // generation.foreign at the last verification
	fingerprint *fingerprint // of the table as it was committed
	scrubber    scrubber
	repairs     repairs
	monitor     monitor
}

func newObserved(shared *generation) observed {
	return observed{generation: shared, repairs: repairs{count: make(map[DamageKind]int)}}
}

// isVerified reports whether no other program committed since the last
// verification.
func (o *observed) isVerified() bool { return o.verified == o.generation.foreign }
