package page

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Width is the longest line, in characters.
const Width = 110

// textWidth is where paragraphs are broken: long lines are hard to read.
const textWidth = 100

const indent = "  "

// Page is what was written so far. It is not safe for concurrent use.
type Page struct {
	w      io.Writer
	colour bool
	scenes int
	// gap is how many empty lines end the page.
	gap int
	err error
}

// New returns an empty page.
func New(w io.Writer, colour bool) *Page { return &Page{w: w, colour: colour} }

// Err returns the first error of writing: nobody reads what comes after it.
func (p *Page) Err() error { return p.err }

// Title begins the page.
func (p *Page) Title(text string) {
	p.line(p.paint(bold, text))
	p.line("")
}

// Scene begins a part of the page, and numbers it.
func (p *Page) Scene(heading string) {
	p.scenes++
	text := fmt.Sprintf("%d. %s", p.scenes, heading)
	p.space(2)
	p.line(p.paint(bold, text))
	p.line(p.paint(bold, strings.Repeat("-", utf8.RuneCountInString(text))))
	p.line("")
}

// Text writes a paragraph.
func (p *Page) Text(format string, args ...any) {
	p.space(1)
	for _, line := range wrap(fmt.Sprintf(format, args...), textWidth) {
		p.line(line)
	}
	p.line("")
}

// Try writes commands that a person could type. A command can go over several lines.
func (p *Page) Try(commands ...string) {
	for _, c := range commands {
		for i, line := range strings.Split(c, "\n") {
			prompt := "$ "
			if i > 0 {
				prompt = "    "
			}
			p.line(indent + p.paint(cyan, prompt+line))
		}
	}
	p.line("")
}

// Listing writes lines as they are, but for the ends of too long ones.
func (p *Page) Listing(lines ...string) {
	for _, line := range lines {
		p.line(indent + clip(line, Width-len(indent)))
	}
	p.line("")
}

// Table writes a table.
func (p *Page) Table(t Table) {
	for i, line := range t.lines() {
		text := strings.TrimRight(indent+line.text, " ")
		switch {
		case i < t.headLines():
			text = p.paint(faint, text)
		case line.mark != None:
			text = indent + line.text + "  " + p.paint(line.mark.colour(), line.mark.String())
		}
		p.line(text)
	}
	p.line("")
}

// Result writes one sentence with its mark in front.
func (p *Page) Result(mark Mark, format string, args ...any) {
	prefix := mark.String() + ": "
	for i, line := range wrap(fmt.Sprintf(format, args...), textWidth-len(indent)-len(prefix)) {
		if i == 0 {
			line = p.paint(mark.colour(), mark.String()) + ": " + line
		} else {
			line = strings.Repeat(" ", len(prefix)) + line
		}
		p.line(indent + line)
	}
}

// space sees to it that the page ends with so many empty lines.
func (p *Page) space(lines int) {
	for p.gap < lines {
		p.line("")
	}
}

func (p *Page) line(text string) {
	p.gap++
	if text != "" {
		p.gap = 0
	}
	if p.err == nil {
		_, p.err = io.WriteString(p.w, text+"\n")
	}
}

// wrap breaks a text into lines.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// clip shortens a line.
func clip(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width-3]) + "..."
}
