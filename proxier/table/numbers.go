package table

import "github.com/nftproxy/nftproxy/proxier/ruleset"

// numbers assigns numbers to service ports with many rows (see
// ruleset.Plan.Number). A number is free again when the kernel has no row with
// it.
type numbers struct {
	owners map[uint32]*portState
	next   uint32
}

// lastNumber is the largest number.
const lastNumber = 1<<(32-ruleset.NumberBits) - 2

func newNumbers() numbers { return numbers{owners: make(map[uint32]*portState), next: 1} }

// assign returns a number for a service port with so many rows, whose committed
// plan may have another one. It returns the same number until a plan is
// committed. The zero Number means that all numbers are used.
func (n *numbers) assign(p *portState, committed *ruleset.Plan, rows int) ruleset.Number {
	if p.number.Fits(rows) {
		return p.number
	}
	if committed == nil || committed.Number != p.number {
		n.set(p.number, nil)
	}
	p.number = n.find(ruleset.NumbersFor(rows))
	n.set(p.number, p)
	return p.number
}

// find returns unused numbers in a row. It continues where it found the last
// ones, so that numbers are not used again soon.
func (n *numbers) find(count uint32) ruleset.Number {
	free := uint32(0)
	for range lastNumber {
		if n.next+count-free > lastNumber+1 {
			n.next, free = 1, 0
		}
		if n.next++; n.owners[n.next-1] != nil {
			free = 0
			continue
		}
		if free++; free == count {
			return ruleset.Number{First: n.next - count, Count: count}
		}
	}
	return ruleset.Number{}
}

// set makes a service port, or none, the owner of numbers.
func (n *numbers) set(numbers ruleset.Number, p *portState) {
	for i := range numbers.Count {
		if p == nil {
			delete(n.owners, numbers.First+i)
		} else {
			n.owners[numbers.First+i] = p
		}
	}
}

// release frees the numbers that a service port does not need after a committed
// change.
func (n *numbers) release(c change) {
	var next ruleset.Number
	if c.next != nil {
		next = c.next.Number
	}
	if c.before != nil && c.before.Number != next {
		n.set(c.before.Number, nil)
	}
	if c.port.number != next {
		n.set(c.port.number, nil)
		c.port.number = next
	}
}
