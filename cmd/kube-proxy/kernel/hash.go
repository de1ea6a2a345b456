package kernel

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// CheckHash returns an error of one line if the kernel cannot hash the
// addresses of clients (nft_hash, CONFIG_NFT_HASH). The kernel loads the module
// if it has one.
func CheckHash() error { return explainHash(Probe(hashProbe())) }

func hashProbe() *nft.Batch {
	set := &nft.Set{Name: "hashes", Key: nft.Types(nft.TypeIPv4Addr)}
	hash := nft.Jhash(2, 1, 0, nft.Saddr(nft.IPv4))
	chain := &nft.Chain{Name: "hash", Rules: []nft.Rule{nft.NewRule(nft.In(set, hash))}}
	b := nft.NewBatch(&nft.Table{
		Family: nft.IPv4, Name: "nftproxy-probe-hash", Sets: []*nft.Set{set}, Chains: []*nft.Chain{chain},
	})
	b.AddProgram()
	return b
}

// explainHash returns the meaning of the result of the probe. A kernel without
// an expression answers ENOENT (nft_expr_type_get).
func explainHash(refused []nft.Problem, err error) error {
	switch {
	case err != nil || len(refused) == 0:
		return err
	case refused[0].Errno == unix.ENOENT:
		return ErrNoHash
	}
	return errors.New(refused[0].String())
}

// ErrNoHash means that the kernel cannot hash the addresses of clients.
var ErrNoHash = errors.New("no nft_hash in the kernel")
