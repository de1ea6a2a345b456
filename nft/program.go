package nft

import (
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/notation"
)

// AddProgram adds the table with all its counters, timeouts, sets, chains and
// rules. A set that exists keeps its rows. A chain that exists keeps its rules,
// and the new rules are appended to them.
func (b *Batch) AddProgram() {
	b.AddTable(b.table.Comment)
	for _, c := range b.table.Counters {
		b.AddCounter(c)
	}
	for _, c := range b.table.CtTimeouts {
		b.AddCtTimeout(c)
	}
	for _, s := range b.table.Sets {
		b.AddSet(s)
	}
	for _, c := range b.table.Chains {
		b.AddChain(c)
	}
	for _, c := range b.table.Chains { // rules may refer to any chain
		b.AddRules(c)
	}
}

// AddTable adds the table with a comment, without its contents. If the table
// exists, nothing changes.
func (b *Batch) AddTable(comment string) {
	b.add(kindTable, sentMessage{}, func(w *messageWriter) {
		var flags uint32
		if b.table.Owned {
			flags = nftTableOwner
		}
		w.Uint32(unix.NFTA_TABLE_FLAGS, flags)
		w.comment(nftaTableUserdata, comment)
	})
}

// DeleteTable deletes the table with all its contents. The commit fails if
// the table does not exist.
func (b *Batch) DeleteTable() { b.delete("delete table", kindTable, "") }

// AddCounter adds a counter that counts from 0. If it exists, it keeps its
// values.
func (b *Batch) AddCounter(c *Counter) {
	b.add(kindCounter, sentMessage{object: c.Name}, func(w *messageWriter) {
		w.Unnest(w.Nest(unix.NFTA_OBJ_DATA))
	})
}

// DeleteCounter deletes a counter. The commit fails if the counter does not
// exist, or if rules refer to it.
func (b *Batch) DeleteCounter(name string) { b.delete("delete counter", kindCounter, name) }

// AddSet adds a set or map. If the set exists with the same type, it keeps
// its rows. The commit fails if the set exists with another type, but only on
// Linux 6.2 or later; earlier kernels keep the set and report no error.
func (b *Batch) AddSet(s *Set) {
	if s.Key.Len() == 0 {
		b.refuse("add set", s.Name, "key has no fields")
	}
	b.add(kindSet, sentMessage{object: s.Name}, func(w *messageWriter) { b.setBody(w, s) })
}

func (b *Batch) setBody(w *messageWriter, s *Set) {
	w.Uint32(unix.NFTA_SET_FLAGS, s.flags())
	w.Uint32(unix.NFTA_SET_KEY_TYPE, s.Key.TypeID())
	w.Uint32(unix.NFTA_SET_KEY_LEN, uint32(s.Key.Len()))
	switch {
	case s.Verdicts:
		w.Uint32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)
		w.Uint32(unix.NFTA_SET_DATA_LEN, 0)
	case s.isMap():
		w.Uint32(unix.NFTA_SET_DATA_TYPE, s.Data.TypeID())
		w.Uint32(unix.NFTA_SET_DATA_LEN, uint32(s.Data.Len()))
	}
	w.Uint32(unix.NFTA_SET_ID, uint32(len(b.messages))) // unique within the batch
	if s.Size != 0 {
		desc := w.Nest(unix.NFTA_SET_DESC)
		w.Uint32(unix.NFTA_SET_DESC_SIZE, s.Size)
		w.Unnest(desc)
	}
	if s.Counts {
		e := w.Nest(nftaSetExpr)
		w.CString(unix.NFTA_EXPR_NAME, exprCounter)
		w.Unnest(w.Nest(unix.NFTA_EXPR_DATA))
		w.Unnest(e)
	}
	w.Bytes(unix.NFTA_SET_USERDATA, notation.SetUserdata(s.Key, s.Data, s.isMap(), s.Comment))
}

// DeleteSet deletes a set. The commit fails if the set does not exist, or if
// rules refer to it.
func (b *Batch) DeleteSet(name string) { b.delete("delete set", kindSet, name) }

// FlushSet deletes all rows of a set. The commit fails if the set does not
// exist.
func (b *Batch) FlushSet(name string) { b.delete("flush set", kindRow, name) }

// AddChain adds a chain without its rules. If the chain exists, only its policy
// changes.
func (b *Batch) AddChain(c *Chain) {
	b.add(kindChain, sentMessage{object: c.Name}, func(w *messageWriter) {
		if c.Hook == nil {
			return
		}
		w.CString(unix.NFTA_CHAIN_TYPE, string(c.Hook.Type))
		at := w.Nest(unix.NFTA_CHAIN_HOOK)
		w.Uint32(unix.NFTA_HOOK_HOOKNUM, uint32(c.Hook.Point))
		w.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(c.Hook.Priority))
		w.Unnest(at)
		var policy uint32 = policyAccept
		if c.Hook.Drop {
			policy = policyDrop
		}
		w.Uint32(unix.NFTA_CHAIN_POLICY, policy)
	})
}

// FlushChain deletes all rules of a chain. The commit fails if the chain does
// not exist.
func (b *Batch) FlushChain(name string) { b.delete("flush chain", kindRule, name) }

// DeleteChain deletes a chain and its rules. The commit fails if the chain
// does not exist, or if rules or rows refer to it.
func (b *Batch) DeleteChain(name string) { b.delete("delete chain", kindChain, name) }

// AddRules appends the rules of c to the chain with the name of c.
func (b *Batch) AddRules(c *Chain) {
	for i := range c.Rules {
		m := sentMessage{object: c.Name, rule: &c.Rules[i]}
		b.add(kindRule, m, func(w *messageWriter) { b.ruleBody(w, m) })
	}
}

func (b *Batch) ruleBody(w *messageWriter, m sentMessage) {
	at := w.Nest(unix.NFTA_RULE_EXPRESSIONS)
	for _, e := range m.rule.Expressions {
		if err := w.expr(b.table.Family, e); err != nil {
			b.refuse("add rule", b.objectText(&m), err.Error())
		}
	}
	w.Unnest(at)
	w.comment(unix.NFTA_RULE_USERDATA, m.rule.Comment)
}

// DeleteRule deletes the rule of a chain that has the handle (see
// RuleID). The commit fails if the chain has no such rule.
func (b *Batch) DeleteRule(chain string, handle uint64) {
	m := sentMessage{op: "delete rule", object: chain, handle: handle}
	b.message(kindRule, m, kindRule.delete, 0, func(w *messageWriter) { w.Uint64(unix.NFTA_RULE_HANDLE, handle) })
}
