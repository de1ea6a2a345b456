package leftovers

import "strings"

// parseSave decodes what iptables-save prints of one table.
func parseSave(table, text string) contents {
	c := contents{table: table}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, ":"):
			name, _, _ := strings.Cut(line[1:], " ")
			c.chains = append(c.chains, name)
		case strings.HasPrefix(line, "-A "):
			chain, text, _ := strings.Cut(line[len("-A "):], " ")
			if target := targetOf(text); target != "" && !ownedChain(table, chain) {
				c.rules = append(c.rules, rule{chain: chain, target: target, text: text})
			}
		}
	}
	return c
}

// targetOf returns the target of a rule, which is a chain or one of iptables' own, "" if it has none.
func targetOf(text string) string {
	words := splitWords(text)
	for i := 0; i+1 < len(words); i++ {
		switch words[i] {
		case "--comment":
			i++ // which can be any word
		case "-j", "-g":
			return words[i+1]
		}
	}
	return ""
}

// splitWords splits a rule at spaces as iptables-restore does: not within quotation marks, where a backslash takes the next
// character as it is. The words keep their marks, so that none of a quoted text is taken for an option.
func splitWords(text string) []string {
	var words []string
	start, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ' ' && !quoted:
			if start < i {
				words = append(words, text[start:i])
			}
			start = i + 1
		}
	}
	if start < len(text) {
		words = append(words, text[start:])
	}
	return words
}

// restoreInput returns the plan for a table as iptables-restore takes it: all of it is carried out or nothing. With --noflush, a chain
// that is declared is emptied.
func restoreInput(table string, p plan) string {
	var b strings.Builder
	b.WriteString("*" + table + "\n")
	for _, chain := range p.flush {
		b.WriteString(":" + chain + " - [0:0]\n")
	}
	for _, r := range p.rules { // by what they say: numbers would be others once somebody adds a rule
		b.WriteString("-D " + r.chain + " " + r.text + "\n")
	}
	for _, chain := range p.delete {
		b.WriteString("-X " + chain + "\n")
	}
	b.WriteString("COMMIT\n")
	return b.String()
}
