package table

import (
	"strings"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// wanted implements keep.Wanted. Its groups are Services.
type wanted struct{ t *Table }

// Diff returns a comparison of the desired table with the kernel.
func (t *Table) Diff() (*keep.Diff, error) { return t.keeper.Diff(wanted{t}) }

func (w wanted) Groups() (names []string) {
	for name := range w.t.ServiceNames() {
		names = append(names, name.String())
	}
	return names
}

func (w wanted) Owners(service string) (owners []keep.Owner) {
	namespace, name, _ := strings.Cut(service, "/")
	if s := w.t.desired.services[cluster.ServiceName{Namespace: namespace, Name: name}]; s != nil {
		for _, p := range s.ports {
			owners = append(owners, p)
		}
	}
	return owners
}

func (w wanted) Content(o keep.Owner) keep.Content {
	plan, _ := w.t.preview(o.(*portState), w.t.ids.preview()) // the remainder if it cannot be written
	if plan == nil {
		return nil
	}
	return content{plan, w.t.rules}
}

func (w wanted) Extra(rows []nft.Row) (extra []nft.Row, err error) {
	t := w.t
	expected, err := t.Expected(nil)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		wants := t.keeper.Has(r)
		if !wants && !t.rules.IsShared(r.Set) && r.Set != t.rules.ReservedIDs(0).Set {
			want, err := expected.Row(r.Set, r.Key)
			if err != nil {
				return nil, err
			}
			wants = want.Set != nil && want.Key == r.Key
		}
		if !wants {
			extra = append(extra, r)
		}
	}
	return extra, nil
}
