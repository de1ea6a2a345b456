package leftovers

import (
	"context"
	"errors"
	"fmt"

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
	r, err := removeAll(ctx, false)
	logger := klog.FromContext(ctx)
	for _, object := range r.removed {
		logger.Info("Removed leftovers of another kube-proxy mode", "object", object)
	}
	for _, object := range r.kept {
		logger.Info("Kept leftovers of another kube-proxy mode that other programs use", "object", object)
	}
	return err
}

// Find returns the objects that Remove would remove or flush, and changes
// nothing. It returns those that it found together with an error.
func Find() ([]string, error) {
	r, err := removeAll(context.Background(), true)
	return r.removed, err
}

// removal removes all leftovers and collects what it did. An element of its
// lists is an object or a table: "table ip nat: 3 rules and 17 chains".
type removal struct {
	findOnly bool // changes nothing: removed is what would be removed
	removed  []string
	kept     []string // used by other programs
}

func removeAll(ctx context.Context, findOnly bool) (*removal, error) {
	r := &removal{findOnly: findOnly}
	err := errors.Join(
		r.nfTables(ctx),
		r.legacy(ctx),
		r.ipvs(), // before the IP sets, which identify node ports
		r.sets(ctx),
	)
	return r, err
}

func (r *removal) addRemoved(object string) { r.removed = append(r.removed, object) }
func (r *removal) addKept(object string)    { r.kept = append(r.kept, object) }

// addTable adds the result of a plan for a table.
func (r *removal) addTable(table string, p plan) {
	if p.removes() {
		r.addRemoved(table + ": " + p.String())
	}
	for _, chain := range p.kept {
		r.addKept(table + ": " + chain)
	}
}

// failed returns the error of a table, or nil.
func (r *removal) failed(table string, err error) error {
	switch {
	case err == nil:
		return nil
	case r.findOnly:
		return fmt.Errorf("%s: %w", table, err)
	}
	return fmt.Errorf("remove leftovers from %s: %w", table, err)
}
