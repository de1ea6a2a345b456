package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/kernel"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// checkKernel checks the version of the kernel and the privileges of this
// process.
func checkKernel(context.Context, *node) Finding {
	if err := kernel.Check(); err != nil {
		return fail(err.Error(), "run Linux 5.13 or later with nf_tables, and nftproxy with CAP_NET_ADMIN")
	}
	return ok("Linux " + release() + " with nf_tables")
}

// checkHash checks that the kernel can hash the addresses of clients.
func checkHash(context.Context, *node) Finding {
	err := kernel.CheckHash()
	switch {
	case err == nil:
		return ok("the kernel can hash the addresses of clients")
	case errors.Is(err, kernel.ErrNoHash):
		return info(err.Error()+": Services with the annotation "+translate.AnnotationBalance+
			" select endpoints at random", "load the module nft_hash, or use a kernel that has it (CONFIG_NFT_HASH), "+
			"and restart nftproxy")
	}
	return unknown(err)
}

// checkTable checks that the tables exist, are in use and belong to nftproxy.
func checkTable(context.Context, *node) Finding {
	var present, absent []string
	for _, f := range families() {
		k, err := explain.OpenKernel(f)
		switch {
		case err == nil:
			present = append(present, f.Name())
			k.Close()
		case errors.Is(err, explain.ErrNoTable):
			absent = append(absent, f.Name())
		case errors.Is(err, explain.ErrPermission):
			return unknown(err)
		default:
			return fail(err.Error(), "start nftproxy: it writes its tables and takes over the tables of kube-proxy")
		}
	}
	switch {
	case len(present) == 0:
		return warn("no table kube-proxy: no proxy in mode nftables has run in this network namespace",
			"start nftproxy, or run this command in the network namespace of the node")
	case len(absent) > 0:
		return info("a table for "+present[0]+" only: no proxy has served "+absent[0], "")
	}
	return ok("tables for IPv4 and IPv6")
}

// endpointRows returns some rows of the map of endpoints.
func endpointRows(f nft.Family) ([]nft.Row, error) { return sampleRows(f, ruleset.OwnSet) }

// sampleRows returns some rows of a set, none if it does not exist.
func sampleRows(f nft.Family, name string) ([]nft.Row, error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	table := &nft.Table{Family: f, Name: ruleset.TableName}
	set, err := conn.FindSet(table, name)
	if err != nil || set == nil {
		return nil, err
	}
	return nft.SampleRows(table, set)
}

// checkFeatures checks with a transaction that the kernel accepts the rules of
// the proxy. The kernel aborts the transaction.
func checkFeatures(context.Context, *node) Finding {
	var refused []string
	for _, f := range families() {
		problems, err := probe(f)
		if err != nil {
			return unknown(err)
		}
		for _, p := range problems {
			refused = append(refused, fmt.Sprintf("%s: %s %s: %v", f.Name(), p.Op, p.Object, p.Errno))
		}
	}
	if len(refused) == 0 {
		return ok("the kernel accepts the rules of nftproxy")
	}
	return fail("the kernel refuses rules of nftproxy",
		"load the modules nft_numgen, nft_fib_ipv4, nft_fib_ipv6, nft_reject_ipv4, nft_reject_ipv6, nft_ct, "+
			"nft_chain_nat and nft_masq, or use a kernel that has them (CONFIG_NFT_*)").with(refused...)
}
