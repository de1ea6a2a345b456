package answer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// nearest returns the name that a user who wrote another one most likely meant:
// the same name in another namespace, or one with few other letters. ok is
// false if there is none.
func nearest(wrote cluster.ServiceName, names []cluster.ServiceName) (found cluster.ServiceName, ok bool) {
	best := maxDistance(wrote.Namespace) + maxDistance(wrote.Name) + 1
	for _, name := range slices.SortedFunc(slices.Values(names), cluster.ServiceName.Compare) {
		namespace, distance := 0, Distance(wrote.Name, name.Name)
		if wrote.Namespace != "" {
			namespace = Distance(wrote.Namespace, name.Namespace)
		}
		if distance == 0 {
			namespace = min(namespace, 1)
		}
		if distance <= maxDistance(wrote.Name) && namespace <= maxDistance(wrote.Namespace) &&
			distance+namespace < best {
			found, ok, best = name, true, distance+namespace
		}
	}
	return found, ok
}

// Nearest returns the word that is most like the one that a user wrote, "" if
// none is.
func Nearest(wrote string, words []string) string {
	best := ""
	for _, word := range words {
		likely := Distance(wrote, word) <= maxDistance(wrote) || strings.HasPrefix(word, wrote)
		if likely && (best == "" || Distance(wrote, word) < Distance(wrote, best)) {
			best = word
		}
	}
	return best
}

// maxDistance is the number of letters that can be wrong in a word.
func maxDistance(word string) int { return max(1, min(3, len(word)/3)) }

// Distance returns the number of letters that must be replaced, added, removed
// or exchanged with the next one to get from one word to another.
func Distance(a, b string) int {
	before, last, now := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range now {
		now[j] = j
	}
	for i := range a {
		before, last, now = last, now, before
		now[0] = i + 1
		for j := range b {
			replace := last[j]
			if a[i] != b[j] {
				replace++
			}
			now[j+1] = min(replace, last[j+1]+1, now[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				now[j+1] = min(now[j+1], before[j-1]+1)
			}
		}
	}
	return cmp.Or(now[len(b)], 0)
}
