package rendezvous

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func BenchmarkTable(b *testing.B) {
	for _, size := range []struct{ endpoints, rows int }{
		{2, 251}, {10, 251}, {25, 251}, {50, 503}, {200, 2003}, {5000, 65536}, {60000, 65536},
	} {
		endpoints := random(rand.New(rand.NewPCG(1, 1)), size.endpoints)
		b.Run(fmt.Sprintf("endpoints=%d/rows=%d", size.endpoints, size.rows), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Table(endpoints, size.rows)
			}
		})
	}
}
