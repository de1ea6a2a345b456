package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/nftproxy/nftproxy/test/lab"
)

// staticRules are the fewest rules that lead a TCP and a UDP frontend to an endpoint each.
func staticRules(from, to targets) string {
	rules := fmt.Sprintf(`
		ip daddr %s tcp dport %d dnat to %s
		ip daddr %s udp dport %d dnat to %s`, from.tcp.Addr(), from.tcp.Port(), to.tcp, from.udp.Addr(), from.udp.Port(), to.udp)
	return fmt.Sprintf(`table ip static {
	chain prerouting {
		type nat hook prerouting priority dstnat%s
	}
	chain output {
		type nat hook output priority -100%s
	}
}
`, rules, rules)
}

// writeRules has nft write rules in a namespace.
func writeRules(ctx context.Context, at *lab.Namespace, rules string) error {
	cmd := at.Command(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w\n%s", err, out)
	}
	return nil
}
