package nft

import (
	"golang.org/x/sys/unix"
)

// AddProgram adds the table with all its sets, chains and rules. Of what exists already, sets keep their rows and chains their
// rules, to which these are appended.
func (b *Batch) AddProgram() {
	b.AddTable(b.table.Comment)
	for _, s := range b.table.Sets {
		b.AddSet(s)
	}
	for _, c := range b.table.Chains {
		b.AddChain(c)
	}
	for _, c := range b.table.Chains { // which may refer to any other chain
		b.AddRules(c)
	}
}

// AddTable adds the table with a comment, without its sets and chains. A table that exists stays as it is.
func (b *Batch) AddTable(comment string) {
	b.checkName(opAddTable, b.table.Name)
	b.message(sentMessage{op: opAddTable}, unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, func(w *messageWriter) {
		w.string(unix.NFTA_TABLE_NAME, b.table.Name)
		w.u32(unix.NFTA_TABLE_FLAGS, 0)
		w.comment(nftaTableUserdata, comment)
	})
}

// DeleteTable deletes the table with all that is in it. It is an error if there is none.
func (b *Batch) DeleteTable() {
	b.message(sentMessage{op: opDeleteTable}, unix.NFT_MSG_DELTABLE, 0, func(w *messageWriter) {
		w.string(unix.NFTA_TABLE_NAME, b.table.Name)
	})
}

// AddChain adds a chain without its rules. A chain that exists stays as it is.
func (b *Batch) AddChain(c *Chain) {
	b.checkName(opAddChain, c.Name)
	b.message(sentMessage{op: opAddChain, object: c.Name}, unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, func(w *messageWriter) {
		w.string(unix.NFTA_CHAIN_TABLE, b.table.Name)
		w.string(unix.NFTA_CHAIN_NAME, c.Name)
		if c.Hook != nil {
			w.string(unix.NFTA_CHAIN_TYPE, string(c.Hook.Type))
			at := w.nest(unix.NFTA_CHAIN_HOOK)
			w.u32(unix.NFTA_HOOK_HOOKNUM, uint32(c.Hook.Point))
			w.u32(unix.NFTA_HOOK_PRIORITY, uint32(c.Hook.Priority))
			w.unnest(at)
		}
		w.comment(nftaChainUserdata, c.Comment)
	})
}

// FlushChain deletes all rules of a chain. It is an error if there is no such chain.
func (b *Batch) FlushChain(name string) {
	b.message(sentMessage{op: opFlushChain, object: name}, unix.NFT_MSG_DELRULE, 0, func(w *messageWriter) {
		w.string(unix.NFTA_RULE_TABLE, b.table.Name)
		w.string(unix.NFTA_RULE_CHAIN, name)
	})
}

// DeleteChain deletes a chain and its rules. It is an error if there is none, or if rules or rows refer to it.
func (b *Batch) DeleteChain(name string) {
	b.message(sentMessage{op: opDeleteChain, object: name}, unix.NFT_MSG_DELCHAIN, 0, func(w *messageWriter) {
		w.string(unix.NFTA_CHAIN_TABLE, b.table.Name)
		w.string(unix.NFTA_CHAIN_NAME, name)
	})
}

// AddRules appends the rules of a chain to the chain of that name.
func (b *Batch) AddRules(c *Chain) {
	for i := range c.Rules {
		m := sentMessage{op: opAddRule, object: c.Name, rule: &c.Rules[i]}
		b.message(m, unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, func(w *messageWriter) { b.ruleBody(w, m) })
	}
}

// DeleteRule deletes a rule of a chain by its handle (see Conn.Rules). It is an error if there is no such rule in the chain.
func (b *Batch) DeleteRule(chain string, handle uint64) {
	b.message(sentMessage{op: opDeleteRule, object: chain, handle: handle}, unix.NFT_MSG_DELRULE, 0, func(w *messageWriter) {
		w.string(unix.NFTA_RULE_TABLE, b.table.Name)
		w.string(unix.NFTA_RULE_CHAIN, chain)
		w.u64(unix.NFTA_RULE_HANDLE, handle)
	})
}

func (b *Batch) ruleBody(w *messageWriter, m sentMessage) {
	w.string(unix.NFTA_RULE_TABLE, b.table.Name)
	w.string(unix.NFTA_RULE_CHAIN, m.object)
	at := w.nest(unix.NFTA_RULE_EXPRESSIONS)
	for _, s := range m.rule.Statements {
		if s.invalid != "" {
			b.refuse(m.op, m.objectText(), s.invalid)
		}
		for _, e := range s.exprs {
			if err := w.expr(b.table.Family, e); err != nil {
				b.refuse(m.op, m.objectText(), err.Error())
			}
		}
	}
	w.unnest(at)
	w.comment(unix.NFTA_RULE_USERDATA, m.rule.Comment)
}

// checkName refuses names that nft cannot read. The kernel takes any, but then a listing would not load again.
func (b *Batch) checkName(op operation, name string) {
	switch {
	case !isName(name):
		b.refuse(op, name, "name is no letter, _ or . followed by letters, digits or any of _ . / -")
	case len(name) >= unix.NFT_NAME_MAXLEN:
		b.refuse(op, name, "name is longer than 255 bytes")
	}
}

// isName says whether nft's scanner takes s as a name, keywords aside.
func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		switch {
		case letter, c == '_', c == '.':
		case i > 0 && ('0' <= c && c <= '9' || c == '/' || c == '-'):
		default:
			return false
		}
	}
	return s != ""
}
