package eject

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// BenchmarkDead measures a second of a Detector, in which every probe is lost
// except those of controls, while 10,000 endpoints in one or many namespaces
// are dead: the attempts of a walk, and a call of Next for each result.
func BenchmarkDead(b *testing.B) {
	for _, namespaces := range []int{1, 100} {
		b.Run(fmt.Sprintf("%d namespaces", namespaces), func(b *testing.B) {
			d, now := New(), time.Unix(1e9, 0)
			const dead = 10_000
			var tries []Try
			for n := range namespaces {
				p := Port{nft.IPv4, cluster.ServiceName{Namespace: fmt.Sprint("ns", n), Name: "web"}.WithPort("")}
				t := Targets{}
				for i := range 2 * dead / namespaces {
					addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n), byte(i >> 8), byte(i)}), 80)
					t.Cluster = append(t.Cluster, addr)
					for id := range 2 * (i % 2) {
						client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, 0, byte(id)}), uint16(i))
						tries = append(tries, Try{Endpoint{p, addr}, client, uint32(id)})
					}
				}
				d.SetTargets(p, t, nil)
			}
			var answers []Answer
			for id := range uint32(2) {
				client := netip.AddrFrom4([4]byte{10, 200, 0, byte(id)})
				answers = append(answers, Answer{ID: id, Client: client, Lasts: time.Minute})
			}
			b.ReportAllocs()
			for b.Loop() {
				d.Tried(now, tries)
				for range 10 {
					orders := d.Next(now)
					for _, e := range orders.Looks {
						d.Answers(now, e, answers)
					}
					for _, p := range orders.Probes {
						result := Lost
						if p.Control {
							result = Answered
						}
						d.Probed(now, p, result)
						d.Next(now)
					}
					now = now.Add(time.Second / 10)
				}
			}
			b.ReportMetric(float64(maxRecords-d.limit.Left()), "records")
		})
	}
}
