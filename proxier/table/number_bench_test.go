package table

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// BenchmarkNumbers writes the Services of the benchmarks while every fifth has
// two external IPs, with and without numbers.
func BenchmarkNumbers(b *testing.B) {
	for _, limit := range []int{ruleset.DefaultNumberLimit, 1} {
		config := sampleConfig()
		config.Rules.NumberLimit = limit
		b.Run(fmt.Sprintf("limit=%d", limit), func(b *testing.B) {
			table := loadedWith(b, config, benchServices, tabletest.ManyEndpoints)
			for i := 0; i < benchServices; i += 5 {
				svc := tabletest.NumberedService(i)
				for n := range byte(2) {
					svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{198, 18 + n, byte(i >> 8),
						byte(i)}))
				}
				table.SetService(svc)
			}
			writes(b, table)
			b.Run("scale-numbered", func(b *testing.B) { scale(b, table, 5) })
		})
	}
}
