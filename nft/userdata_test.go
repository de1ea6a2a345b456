package nft

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// recordedSets are the messages of nft 1.0.6 for the sets of
// testdata/sets.nft. goldenSets returns the same sets.
//
//go:embed testdata/sets-1.0.6.txt
var recordedSets string

func goldenSets(f Family) []*Set {
	addr := TypeAddr(f)
	vip := Types(addr, TypeInetProto, TypeInetService)
	endpoint := Types(addr, TypeInetService)
	return []*Set{
		{Name: "addresses", Key: Types(addr), Comment: "Active ClusterIPs"},
		{Name: "hairpin", Key: Types(addr, addr, TypeInetProto, TypeInetService)},
		{Name: "ports", Key: Types(TypeInetService), Size: 1024, Comment: "ranges of ports"},
		{Name: "affinity", Key: Types(addr, TypeClassID), Dynamic: true, Size: 1 << 20},
		{Name: "five", Key: Types(addr, TypeInetService, addr, TypeInetService, TypeInetProto)},
		{Name: "service-ips", Key: vip, Verdicts: true, Comment: "ClusterIP, external IP and LoadBalancer IP traffic"},
		{Name: "nodeports", Key: Types(TypeInetProto, TypeInetService), Verdicts: true},
		{
			Name: "endpoints", Key: Types(addr, TypeInetProto, TypeInetService, TypeClassID), Data: endpoint,
			Comment: "by index",
		},
		{Name: "by-class", Key: Types(TypeClassID), Verdicts: true},
		{Name: "by-port", Key: Types(TypeInetService), Verdicts: true},
		{Name: "translate", Key: Types(addr), Data: Types(addr)},
		{Name: "to-port", Key: Types(addr), Data: Types(TypeInetService)},
		{Name: "to-endpoint", Key: Types(TypeInetService), Data: endpoint},
	}
}

// Messages of sets equal the messages of nft 1.0.6 byte by byte. Other
// versions can make it crash.
func TestSetMessages(t *testing.T) {
	for _, f := range []Family{IPv4, IPv6} {
		for _, s := range goldenSets(f) {
			t.Run(f.String()+"/"+s.Name, func(t *testing.T) {
				want, ok := recorded(f, s.Name)
				if !ok {
					t.Fatalf("set %s of family %s is not recorded", s.Name, f)
				}
				if got := setAttributes(f, s); !slices.Equal(got, want) {
					t.Errorf("got  %s\nwant %s", strings.Join(got, " "), strings.Join(want, " "))
				}
			})
		}
	}
}

func recorded(f Family, set string) ([]string, bool) {
	for line := range strings.Lines(recordedSets) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == f.String() && fields[1] == set {
			return fields[2:], true
		}
	}
	return nil, false
}

// setAttributes returns the attributes that AddSet writes, in the format of
// recordedSets.
func setAttributes(f Family, s *Set) []string {
	b := NewBatch(&Table{Family: f, Name: "t"})
	b.AddSet(s)
	_, msg, _ := b.messageOf(b.lastSeq())
	values := make(map[uint16][]byte)
	eachAttr(msg[nfnetlink.HeaderLen:], func(typ uint16, value []byte) { values[typ] = value })
	var out []string
	for _, typ := range slices.Sorted(maps.Keys(values)) {
		switch typ {
		case unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, unix.NFTA_SET_ID:
		default:
			out = append(out, fmt.Sprintf("%d=%x", typ, values[typ]))
		}
	}
	return out
}
