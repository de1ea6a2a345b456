package keep_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

var histories = flag.Uint64("histories", 6, "number of histories of TestRandomHistories")

// Whatever happens, the table is as it is wanted after a Resync and a few
// Checks without faults.
func TestRandomHistories(t *testing.T) {
	for seed := range *histories {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 0))
			f := newServing(t) // its rules need all that is on demand
			f.limits = keep.Limits{
				PartCost: 4, HeavyCost: 3, PartTime: time.Hour, Time: time.Hour, Spread: time.Millisecond,
				Burst: time.Hour, ColdBytes: 1000, FreeRepair: time.Hour,
			}
			for range 10 {
				f.randomChange(random)
				f.answer(randomFaults(random)...)
				switch random.IntN(8) { // with and without errors
				case 0:
					_ = f.Check()
				case 1:
					_ = f.Resync()
				case 2:
					f.Distrust("test", "test")
				}
				if err := f.Sync(); err != nil && random.IntN(2) == 0 {
					continue
				}
				f.answer()
				f.mustCheck(t)
				if err := f.Resync(); err != nil {
					t.Fatal(err)
				}
				for range 5 {
					f.mustCheck(t)
				}
				f.check(t)
				failing := slices.Collect(f.Failing())
				if len(failing) > 0 || !f.UpToDate() || t.Failed() {
					t.Fatalf("got failing rules %v, up to date: %v", failing, f.UpToDate())
				}
			}
		})
	}
}

// randomChange changes up to three rules.
func (f *firewall) randomChange(random *rand.Rand) {
	for range random.IntN(4) {
		i := random.IntN(6)
		wants := fmt.Sprintf("%d from 10.0.0.%d cost %d ", 100*i+random.IntN(3), random.IntN(4), random.IntN(5))
		f.set(fmt.Sprint("rule-", i), pick(random, "none", wants+"limited 10", wants+"counted",
			wants+fmt.Sprint("remembered allow-", i), wants+fmt.Sprint("bans 192.0.2.", i)))
	}
}

// randomFaults returns up to five answers to commits.
func randomFaults(random *rand.Rand) (errs []error) {
	const objects = `table ip firewall {
		map ports { type inet_service : verdict; }
		set hosts { type ipv4_addr; }
		chain services { }
	}
	` // also if there is no table
	for range random.IntN(6) {
		errno := pick(random, unix.ENOMEM, unix.EINVAL, unix.EEXIST, unix.EPERM)
		errs = append(errs, pick[error](random, nil, errLost,
			tabletest.Refuse(errno), tabletest.Refuse(errno, random.Uint32N(5)),
			tabletest.Refuse(errno, random.Uint32N(5)), tabletest.Refuse(errno, random.Uint32N(5)),
			other("add table ip other\ndelete table ip other"), other("flush ruleset"),
			other(objects+"flush chain ip firewall services"), other(objects+"flush set ip firewall hosts"),
			other(objects+"flush map ip firewall ports"),
		))
	}
	return errs
}

func pick[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }
