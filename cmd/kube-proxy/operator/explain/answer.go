package explain

import "fmt"

// Answer returns the outcome in one line, as the result of a packet that has no
// other one.
func (o Outcome) Answer() string { return (&Result{Outcomes: []Outcome{o}}).answer() }

// answer returns the fate in one line.
func (r *Result) answer() string {
	first := r.Outcomes[0]
	for _, o := range r.Outcomes {
		if o.Action != first.Action {
			return "it depends on chance"
		}
	}
	switch first.Action {
	case Reject:
		return fmt.Sprintf("rejected (%s): %s", first.RejectWith, first.Reason.Text)
	case Drop:
		return "dropped: " + first.Reason.Text
	case Pass:
		return "not translated: " + first.Reason.Text
	}
	return r.endpoints()
}

func (r *Result) endpoints() string {
	first := r.Outcomes[0]
	text := fmt.Sprintf("one of %d endpoints, ", len(r.Outcomes))
	if len(r.Outcomes) == 1 {
		text = fmt.Sprintf("endpoint %s, ", first.Endpoint)
	}
	if r.alike() {
		text += first.sourceAddress()
	} else {
		text += "source address masqueraded for some"
	}
	if first.Affinity != "" {
		text += fmt.Sprintf("; session affinity: a %s client", first.Affinity)
	}
	return text
}

// sourceAddress returns what happens to the source address, or the reason of a
// refusal.
func (o *Outcome) sourceAddress() string {
	switch {
	case o.Masqueraded:
		return "source address masqueraded: " + o.Reason.Text
	case o.Action == ToEndpoint:
		return "source address kept"
	}
	return o.Reason.Text
}

// alike reports whether the outcomes differ in the endpoint only.
func (r *Result) alike() bool {
	for _, o := range r.Outcomes {
		first := r.Outcomes[0]
		if o.Action != first.Action || o.Masqueraded != first.Masqueraded || o.Reason != first.Reason {
			return false
		}
	}
	return true
}
