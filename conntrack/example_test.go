package conntrack_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/nftproxy/nftproxy/conntrack"
)

// An endpoint of a UDP service is removed. Its clients continue to send from
// the same ports, so their flows have to be deleted.
func Example() {
	conn, err := conntrack.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	passes := make(chan conntrack.Result, 2)
	cleaner := conn.NewCleaner(conntrack.CleanerConfig{Report: func(r conntrack.Result) { passes <- r }})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { cleaner.Run(ctx) })

	// Before this call, the caller committed rules without the endpoint.
	cleaner.Update(conntrack.FrontendChange{
		Frontend:  netip.MustParseAddrPort("192.0.2.10:53"),
		Endpoints: []netip.AddrPort{netip.MustParseAddrPort("198.51.100.6:53")},
	})
	for range 2 {
		pass := <-passes
		fmt.Printf("new changes: %d, rechecks: %d, deleted flows: %d, error: %v\n",
			pass.Changes, pass.Rechecks, pass.Deleted, pass.Err)
	}
	cancel()
	running.Wait()

	// Output:
	// new changes: 1, rechecks: 0, deleted flows: 0, error: <nil>
	// new changes: 0, rechecks: 1, deleted flows: 0, error: <nil>
}
