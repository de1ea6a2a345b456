package history

import (
	"fmt"
	"net/netip"
	"strings"
)

// Subject returns the name of the service port, or what the entry is about
// otherwise.
func (e *Entry) Subject() string {
	if e.Service.Name == "" {
		return "table"
	}
	return e.Service.WithPort(e.Port).String()
}

// Text describes what happened, in one line.
func (e *Entry) Text() string {
	text := e.what()
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	if len(e.Programs) > 0 {
		text += "; these processes change tables: " + strings.Join(e.Programs, ", ")
	}
	if e.Count > 1 {
		text += fmt.Sprintf(" (%d times in %s)", e.Count, e.Last.Sub(e.Time).Round(1e8))
	}
	return text
}

func (e *Entry) what() string {
	switch e.Kind {
	case Refusal:
		return "cannot be updated"
	case Write:
		return fmt.Sprintf("wrote the whole table (service ports: %d%s)", e.ServicePorts, e.changed())
	case Repair:
		return "repaired what was damaged"
	case Failure:
		return "sync failed"
	}
	var parts []string
	add := func(shown bool, format string, args ...any) {
		if shown {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(e.Changed > 0, "changed service ports, of which not all are listed: %d", e.Changed)
	add(e.Added, "added")
	add(e.Removed, "removed")
	add(!e.Frontends.IsZero(), "frontends %s", e.Frontends.text())
	add(!e.Endpoints.IsZero(), "endpoints %s (%d now)", e.Endpoints.text(), e.Usable)
	add(len(e.Ejected.Added) > 0, "ejected %s (%d left)", joined(e.Ejected.Added), e.Usable)
	add(len(e.Ejected.Removed) > 0, "used again: %s (%d now)", joined(e.Ejected.Removed), e.Usable)
	add(len(e.Settings) > 0, "changed: %s", strings.Join(e.Settings, ", "))
	return strings.Join(parts, "; ")
}

func (e *Entry) changed() string {
	if e.Changed == 0 {
		return ""
	}
	return fmt.Sprintf(", changed: %d", e.Changed)
}

// text returns what came and went, such as "+10.0.0.1:80 -10.0.0.2:80".
func (d *Difference[T]) text() string {
	var words []string
	for _, v := range d.Added {
		words = append(words, fmt.Sprintf("+%v", v))
	}
	for _, v := range d.Removed {
		words = append(words, fmt.Sprintf("-%v", v))
	}
	if d.More > 0 {
		words = append(words, fmt.Sprintf("and %d more", d.More))
	}
	return strings.Join(words, " ")
}

func joined(endpoints []netip.AddrPort) string {
	texts := make([]string, len(endpoints))
	for i, e := range endpoints {
		texts[i] = e.String()
	}
	return strings.Join(texts, " ")
}
