package kernel

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// CheckTimeouts returns an error of one line if rules cannot set timeouts of
// connection tracking (nft_ct, CONFIG_NF_CONNTRACK_TIMEOUT). The kernel loads
// the module if it has one.
func CheckTimeouts() error { return explainTimeouts(Probe(timeoutProbe())) }

func timeoutProbe() *nft.Batch {
	timeout := &nft.CtTimeout{Name: "retry", Protocol: unix.IPPROTO_TCP, Policy: nft.TimeoutPolicy{1}}
	chain := &nft.Chain{Name: "retry", Rules: []nft.Rule{nft.NewRule(nft.SetCtTimeout(timeout))}}
	b := nft.NewBatch(&nft.Table{
		Family: nft.IPv4, Name: "nftproxy-probe-timeout",
		CtTimeouts: []*nft.CtTimeout{timeout}, Chains: []*nft.Chain{chain},
	})
	b.AddProgram()
	return b
}

// explainTimeouts returns the meaning of the result of the probe. A kernel
// without a type of objects answers ENOENT (nft_obj_type_get).
func explainTimeouts(refused []nft.Problem, err error) error {
	switch {
	case err != nil || len(refused) == 0:
		return err
	case refused[0].Errno == unix.ENOENT:
		return ErrNoTimeouts
	}
	return errors.New(refused[0].String())
}

// ErrNoTimeouts means that rules cannot set timeouts of connection tracking.
var ErrNoTimeouts = errors.New("no ct timeout in the kernel")
