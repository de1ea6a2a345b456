package explain

import (
	"net/netip"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Pods is how the rules recognize packets of this cluster's pods.
type Pods struct {
	// Range is the range of their addresses. It is not valid if the rules
	// recognize them by the interface.
	Range netip.Prefix
	// Interface is the name of the interface, or its beginning and *.
	Interface string
}

// String returns `the range 10.244.0.0/16` or `interface veth*`.
func (p Pods) String() string {
	if p.Range.IsValid() {
		return "the range " + p.Range.String()
	}
	return "interface " + p.Interface
}

// Pods returns how the rules recognize pods. ok is false if they recognize
// none.
func (k *Kernel) Pods() (pods Pods, ok bool, err error) {
	rules, err := k.Rules(chainExternalLocal)
	if err != nil {
		return pods, false, err
	}
	for _, rule := range rules {
		if p, found := addressRange(k.table.Family, rule.Expressions, "saddr"); found {
			return Pods{Range: p}, true, nil
		}
		if name, found := arrivalInterface(rule.Expressions); found {
			return Pods{Interface: name}, true, nil
		}
	}
	return pods, false, nil
}

// arrivalInterface returns the interface that a rule matches first.
func arrivalInterface(rule []expr.Any) (string, bool) {
	if len(rule) < 2 {
		return "", false
	}
	load, isMeta := rule[0].(*expr.Meta)
	compare, isCmp := rule[1].(*expr.Cmp)
	if !isMeta || !isCmp || load.Key != expr.MetaKeyIIFNAME || load.SourceRegister || compare.Op != expr.CmpOpEq {
		return "", false
	}
	name, _, _ := strings.Cut(string(compare.Data), "\x00")
	if len(compare.Data) < unix.IFNAMSIZ { // without the padding of a whole name
		name += "*"
	}
	return name, true
}
