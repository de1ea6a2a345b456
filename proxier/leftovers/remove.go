package leftovers

import (
	"context"
	"errors"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// Report says what Remove did, each line one object: "table ip nat: 3 rules and 17 chains".
type Report struct {
	// Removed is what was there and was removed.
	Removed []string
	// Kept is what is kube-proxy's and stays, because programs of others use it.
	Kept []string
}

func (r *Report) removed(object string) { r.Removed = append(r.Removed, object) }
func (r *Report) kept(object string)    { r.Kept = append(r.Kept, object) }

// attempts is how often the removal of a table is begun anew because others change it meanwhile, or use what was to be removed.
const attempts = 10

// families are the address families, each with tables of its own.
var families = []nft.Family{nft.IPv4, nft.IPv6}

// Remove removes what kube-proxy's iptables and IPVS modes left in the network namespace of the calling thread, and nothing of
// others. It logs what it removed and what it had to leave. That nothing is there is no error, nor is a kernel without legacy iptables, IP sets or
// IPVS. What cannot be removed keeps nothing else from being removed; the error names all of it.
//
// The rules that take over must be in place before. Remove may be called again at any time. It takes CAP_NET_ADMIN.
func Remove(ctx context.Context) (Report, error) {
	var report Report
	err := errors.Join(
		removeFromNFTables(ctx, &report),
		removeFromLegacy(ctx, &report),
		removeIPVS(&report), // before the sets, by which it knows NodePorts
		removeSets(ctx, &report),
	)
	logger := klog.FromContext(ctx)
	for _, object := range report.Removed {
		logger.Info("Removed what another mode of kube-proxy left", "object", object)
	}
	for _, object := range report.Kept {
		logger.Info("Kept what another mode of kube-proxy left, since other programs use it", "object", object)
	}
	return report, err
}
