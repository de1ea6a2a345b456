package connlimit

import (
	"slices"
	"testing"
)

// Above the limit, a new connection takes the place of the one that has been
// unused the longest, in the group with the most connections.
func TestLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		max   int
		steps []string // the group of a new connection, "use" or "release" of the first one
		ended []int    // numbers of connections
	}{
		"below the limit":              {3, []string{"a", "a", "b"}, nil},
		"one group":                    {2, []string{"a", "a", "a", "a"}, []int{0, 1}},
		"use":                          {2, []string{"a", "a", "use", "a"}, []int{1}},
		"release":                      {2, []string{"a", "a", "release", "a", "release"}, nil},
		"the largest group":            {3, []string{"b", "a", "a", "b", "a", "a", "a"}, []int{0, 1, 2, 4}},
		"use does not protect a group": {3, []string{"a", "a", "a", "use", "b", "b", "c"}, []int{1, 2, 3}},
		"a new group":                  {3, []string{"a", "a", "a", "b"}, []int{0}},
		"equal groups":                 {2, []string{"a", "b", "c", "d"}, []int{0, 1}},
		"a limit of 0 is 1":            {0, []string{"a", "b"}, []int{0}},
	} {
		l := New[string]("test", tc.max)
		var conns []*Conn[string]
		var ended []int
		for _, step := range tc.steps {
			switch step {
			case "use":
				conns[0].Use()
			case "release":
				conns[0].Release()
			default:
				n := len(conns)
				conns = append(conns, l.Add(step, func() { ended = append(ended, n) }))
			}
		}
		if !slices.Equal(ended, tc.ended) {
			t.Errorf("%s: got %v ended, want %v", name, ended, tc.ended)
		}
		for _, c := range conns {
			c.Use()
			c.Release()
		}
		if l.open != 0 || len(l.groups) != 0 {
			t.Errorf("%s: got %d connections in %d groups after the end, want none", name, l.open, len(l.groups))
		}
	}
}
