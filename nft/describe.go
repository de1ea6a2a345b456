package nft

import (
	"log/slog"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// describe returns the type of a message of nf_tables and the objects in it,
// for the log of messages (see nfnetlink.Socket).
func describe(msg nfnetlink.Message) (typ string, objects []slog.Attr) {
	const subsystem = 8 // bits before the subsystem
	number := msg.Type() & (1<<subsystem - 1)
	if msg.Type()>>subsystem != unix.NFNL_SUBSYS_NFTABLES || int(number) >= len(messageNames) ||
		len(msg) < nfnetlink.HeaderLen {
		return "", nil
	}
	attributes := msg.Attributes()
	for _, kind := range []*objectKind{kindTable, kindChain, kindSet, kindCounter, kindRule, kindRow} {
		if number != kind.add && number != kind.get && number != kind.delete {
			continue
		}
		family := Family(msg[nfnetlink.MessageHeaderLen])
		if name := cString(attr(attributes, kind.table)); name != "" {
			objects = append(objects, slog.String("table", family.String()+" "+name))
		}
		if name := attr(attributes, kind.object); kind.object != 0 && name != nil {
			objects = append(objects, slog.String(kind.objectName(), cString(name)))
		}
		if kind == kindRow {
			rows := 0
			eachAttr(attr(attributes, unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(uint16, []byte) { rows++ })
			objects = append(objects, slog.Int("rows", rows))
		}
	}
	return messageNames[number], objects
}

// objectName returns what the name in messages of this kind names.
func (k *objectKind) objectName() string {
	switch k {
	case kindRule:
		return kindChain.name
	case kindRow:
		return kindSet.name
	}
	return k.name
}

// messageNames are the types of messages (enum nf_tables_msg_types).
var messageNames = strings.Fields(`
	NFT_MSG_NEWTABLE NFT_MSG_GETTABLE NFT_MSG_DELTABLE
	NFT_MSG_NEWCHAIN NFT_MSG_GETCHAIN NFT_MSG_DELCHAIN
	NFT_MSG_NEWRULE NFT_MSG_GETRULE NFT_MSG_DELRULE
	NFT_MSG_NEWSET NFT_MSG_GETSET NFT_MSG_DELSET
	NFT_MSG_NEWSETELEM NFT_MSG_GETSETELEM NFT_MSG_DELSETELEM
	NFT_MSG_NEWGEN NFT_MSG_GETGEN NFT_MSG_TRACE
	NFT_MSG_NEWOBJ NFT_MSG_GETOBJ NFT_MSG_DELOBJ
`)
