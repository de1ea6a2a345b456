package kernel

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// CheckHash returns an error of one line if the kernel cannot hash the
// addresses of clients (nft_hash, CONFIG_NFT_HASH). It sends a table of its own
// in a transaction that the kernel aborts, so that other programs do not notice
// it. The kernel loads the module if it has one.
func CheckHash() error {
	conn, err := nft.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	return explainHash(conn.Commit(hashProbe()))
}

// absent is a set that the table of a probe does not have. Deleting it makes
// the kernel abort the transaction.
const absent = "absent"

func hashProbe() *nft.Batch {
	set := &nft.Set{Name: "hashes", Key: nft.Types(nft.TypeIPv4Addr)}
	hash := nft.Jhash(2, 1, 0, nft.Saddr(nft.IPv4))
	chain := &nft.Chain{Name: "hash", Rules: []nft.Rule{nft.NewRule(nft.In(set, hash))}}
	b := nft.NewBatch(&nft.Table{Family: nft.IPv4, Name: "nftproxy-probe-hash"})
	b.AddTable("")
	b.AddSet(set)
	b.AddChain(chain)
	b.AddRules(chain)
	b.DeleteSet(absent)
	return b
}

// explainHash returns the meaning of the answer to the probe. A kernel without
// an expression answers ENOENT (nft_expr_type_get).
func explainHash(answer error) error {
	refusal := new(nft.CommitError)
	if !errors.As(answer, &refusal) {
		return errors.Join(errors.New("the kernel did not abort the probe of nft_hash"), answer)
	}
	for _, p := range refusal.Problems {
		switch {
		case p.Object == absent && p.Errno == unix.ENOENT:
		case p.Errno == unix.ENOENT:
			return ErrNoHash
		default:
			return answer
		}
	}
	return nil
}

// ErrNoHash means that the kernel cannot hash the addresses of clients.
var ErrNoHash = errors.New("no nft_hash in the kernel")
