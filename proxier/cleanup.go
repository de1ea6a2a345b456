package proxier

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// CleanupLeftovers deletes the tables kube-proxy of both families in the
// network namespace of the calling thread, and nothing else. It logs errors,
// and returns true if there was one.
func CleanupLeftovers(ctx context.Context) (encounteredError bool) {
	logger := klog.FromContext(ctx)
	conn, err := nft.Open()
	if err != nil {
		logger.Error(err, "Cleanup failed")
		return true
	}
	defer conn.Close()
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		table := &nft.Table{Family: f, Name: ruleset.TableName}
		b := nft.NewBatch(table)
		b.DeleteTable()
		err := conn.Commit(b)
		switch {
		case err == nil:
			logger.Info("Removed " + table.String())
		case errors.Is(err, unix.ENOENT):
			logger.Info("There is no " + table.String())
		default:
			logger.Error(err, "Cleanup failed")
			encounteredError = true
		}
	}
	return encounteredError
}
