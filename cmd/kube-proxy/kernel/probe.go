package kernel

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// absent is a set that the table of a probe does not have. Deleting it makes
// the kernel abort the transaction.
const absent = "absent"

// Probe sends a batch to the kernel in a transaction that the kernel aborts, so
// that other programs do not notice it. It returns the parts that the kernel
// refuses.
func Probe(b *nft.Batch) (refused []nft.Problem, err error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	b.DeleteSet(absent)
	return refusals(conn.Commit(b))
}

// refusals returns the meaning of the answer to a probe.
func refusals(answer error) ([]nft.Problem, error) {
	if errors.Is(answer, unix.EPERM) {
		return nil, errors.New("no permission to send rules to the kernel: CAP_NET_ADMIN is required")
	}
	refused := new(nft.CommitError)
	if !errors.As(answer, &refused) {
		return nil, errors.Join(errors.New("the kernel did not abort the probe"), answer)
	}
	return slices.DeleteFunc(refused.Problems, func(p nft.Problem) bool {
		return p.Object == absent && p.Errno == unix.ENOENT
	}), nil
}
