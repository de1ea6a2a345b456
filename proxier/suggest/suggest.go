// Package suggest finds the name that somebody meant who misspelled it.
package suggest

import "strings"

// Closest returns the name that is closest to a word, if it is close: without
// regard to case, it differs by at most a quarter of its letters, and by one in
// any case. A letter is missing, added or another one, or two are exchanged.
// Among equals, the first one wins.
func Closest(word string, names ...string) (closest string, ok bool) {
	best := 0
	for _, name := range names {
		most := max(1, (len(name)+1)/4)
		if abs(len(word)-len(name)) > most {
			continue
		}
		if d := distance(word, name); d <= most && (!ok || d < best) {
			closest, best, ok = name, d, true
		}
	}
	return closest, ok
}

// distance returns the number of letters to change to make two words equal.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	var before, last []int // the distances of shorter beginnings of a to all beginnings of b
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			row[j+1] = min(last[j+1], row[j]) + 1
			if a[i] == b[j] {
				row[j+1] = min(row[j+1], last[j])
			} else {
				row[j+1] = min(row[j+1], last[j]+1)
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

func abs(n int) int { return max(n, -n) }
