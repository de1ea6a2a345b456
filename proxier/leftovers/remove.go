package leftovers

import (
	"context"
	"errors"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// attempts limits the attempts to change a table that other programs change
// at the same time.
const attempts = 10

var families = []nft.Family{nft.IPv4, nft.IPv6}

// Remove removes the leftovers of kube-proxy's iptables and IPVS modes from
// the network namespace of the calling thread. It logs each removed object,
// and each object that it keeps because another program uses it. Missing
// leftovers are not an error, nor is a kernel without legacy iptables, IP sets
// or IPVS. If an object cannot be removed, Remove continues; the error names
// all such objects.
//
// The rules of the nftables mode must exist before Remove is called. Remove
// can be called repeatedly. It requires CAP_NET_ADMIN.
func Remove(ctx context.Context) error {
	report, err := removeAll(ctx)
	logger := klog.FromContext(ctx)
	for _, object := range report.removed {
		logger.Info("Removed leftovers of another kube-proxy mode", "object", object)
	}
	for _, object := range report.kept {
		logger.Info("Kept leftovers of another kube-proxy mode that other programs use", "object", object)
	}
	return err
}

func removeAll(ctx context.Context) (report, error) {
	var r report
	err := errors.Join(
		removeFromNFTables(ctx, &r),
		removeFromLegacy(ctx, &r),
		removeIPVS(&r), // before the IP sets, which identify node ports
		removeSets(ctx, &r),
	)
	return r, err
}

// report is the result of a removal. An element of its lists is an object or
// a table: "table ip nat: 3 rules and 17 chains".
type report struct {
	removed []string
	kept    []string // used by other programs
}

func (r *report) addRemoved(object string) { r.removed = append(r.removed, object) }
func (r *report) addKept(object string)    { r.kept = append(r.kept, object) }

// addTable adds the result of a plan for a table.
func (r *report) addTable(table string, p plan) {
	if p.removes() {
		r.addRemoved(table + ": " + p.String())
	}
	for _, chain := range p.kept {
		r.addKept(table + ": " + chain)
	}
}
