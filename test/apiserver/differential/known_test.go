package differential

// knownReason returns why a difference is expected, "" if it is not.
func knownReason(d difference) string {
	switch {
	case d.app == nil:
		return ""
	case d.app.contradictory():
		return "endpoints with the same address contradict each other"
	}
	return ""
}
