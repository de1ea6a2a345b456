package page

// Mark says whether what is shown is as it should be.
type Mark int

// The marks.
const (
	// None: there is nothing to say about it.
	None Mark = iota
	OK
	Wrong
)

// MarkOf returns OK or Wrong.
func MarkOf(ok bool) Mark {
	if ok {
		return OK
	}
	return Wrong
}

// String returns the mark as it is written.
func (m Mark) String() string {
	switch m {
	case OK:
		return "ok"
	case Wrong:
		return "WRONG"
	}
	return ""
}

func (m Mark) colour() string {
	if m == Wrong {
		return red
	}
	return green
}

// The colours, as terminals take them (ECMA-48, SGR).
const (
	bold  = "1"
	faint = "2"
	red   = "1;31"
	green = "32"
	cyan  = "36"
)

// paint gives a text a colour where colours are wanted.
func (p *Page) paint(colour, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
