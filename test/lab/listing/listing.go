// Package listing reads tables as the program nft lists them.
package listing

import (
	"context"
	"fmt"
	"strings"

	"github.com/nftproxy/nftproxy/test/lab"
)

// Line is a rule, an element or a property of an object of a table.
type Line struct {
	Family string // ip or ip6
	Object string // chain services; empty for a property of the table
	Text   string // empty for the object itself
	// Element reports whether it is an element of a set or map.
	Element bool
}

// String returns the line with its object: "ip chain services: return".
func (l Line) String() string { return strings.TrimSuffix(l.Family+" "+l.Object, " ") + ": " + l.Text }

// List returns the lines of the tables kube-proxy of both families in a
// namespace, without counters and expiration times.
func List(ctx context.Context, at *lab.Namespace) (all []Line, err error) {
	for _, family := range []string{"ip", "ip6"} {
		out, err := Run(ctx, at, "--stateless", "list", "table", family, "kube-proxy")
		if err != nil {
			return nil, err
		}
		all = append(all, Parse(family, out)...)
	}
	return all, nil
}

// Run runs nft in a namespace and returns its output.
func Run(ctx context.Context, at *lab.Namespace, args ...string) (string, error) {
	out, err := at.Command(ctx, "nft", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("nft %s in %s: %w: %s", strings.Join(args, " "), at.Name, err, out)
	}
	return string(out), nil
}

// Parse returns the lines of a table, in their order.
func Parse(family, listing string) (all []Line) {
	var object string // empty outside of objects
	element := false
	add := func(text string) {
		if text = strings.TrimSpace(text); text != "" {
			all = append(all, Line{Family: family, Object: object, Text: text, Element: element})
		}
	}
	_, body, _ := strings.Cut(listing, "\n") // after "table ip kube-proxy {"
	for line := range strings.Lines(strings.TrimSuffix(body, "}\n")) {
		switch inner := strings.HasPrefix(line, "\t\t"); {
		case !inner && strings.HasSuffix(line, "{\n"):
			object = strings.TrimSpace(strings.TrimSuffix(line, "{\n"))
			all = append(all, Line{Family: family, Object: object})
		case !inner && line == "\t}\n":
			object, element = "", false
		default:
			if text, ok := strings.CutPrefix(line, "\t\telements = {"); ok {
				line, element = text, true
			}
			if !element {
				add(line)
				continue
			}
			for text := range strings.SplitSeq(strings.TrimRight(line, "}\n\t "), ",") { // no comment contains a comma
				add(text)
			}
		}
	}
	return all
}

// Difference describes the lines that one of two sorted lists lacks.
func Difference(want, got []string) string {
	const most = 20
	var text []string
	for len(want) > 0 || len(got) > 0 {
		switch {
		case len(got) == 0 || len(want) > 0 && want[0] < got[0]:
			text, want = append(text, "- "+want[0]), want[1:]
		case len(want) == 0 || got[0] < want[0]:
			text, got = append(text, "+ "+got[0]), got[1:]
		default:
			want, got = want[1:], got[1:]
		}
	}
	return strings.Join(text[:min(most, len(text))], "\n")
}
