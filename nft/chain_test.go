package nft

import (
	"slices"
	"testing"
)

func TestEqualChains(t *testing.T) {
	chain := func(change func(*Chain)) *Chain {
		rules := []Rule{NewRule(CtStatusDNAT(), Drop()), NewRule(Goto("d")).WithComment("y")}
		c := &Chain{Name: "c", Hook: &Hook{Type: ChainTypeFilter, Point: Input}, Rules: rules}
		change(c)
		return c
	}
	original := chain(func(*Chain) {})
	tests := []struct {
		name   string
		change func(*Chain)
		want   bool
	}{
		{"nothing", func(c *Chain) {}, true},
		{"equal rule", func(c *Chain) { c.Rules[0] = NewRule(CtStatusDNAT(), Drop()) }, true},
		{"name", func(c *Chain) { c.Name = "d" }, false},
		{"priority", func(c *Chain) { c.Hook.Priority = 1 }, false},
		{"no hook", func(c *Chain) { c.Hook = nil }, false},
		{"statement", func(c *Chain) { c.Rules[0] = NewRule(CtStatusDNAT()) }, false},
		{"order", func(c *Chain) { slices.Reverse(c.Rules) }, false},
		{"fewer rules", func(c *Chain) { c.Rules = c.Rules[:1] }, false},
		{"comment of a rule", func(c *Chain) { c.Rules[1].Comment = "z" }, false},
	}
	for _, tt := range tests {
		other := chain(tt.change)
		if a, b := original.Equal(other), other.Equal(original); a != tt.want || b != tt.want {
			t.Errorf("%s changed: got %v, %v; want %v", tt.name, a, b, tt.want)
		}
	}
}
