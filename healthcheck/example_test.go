package healthcheck_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/healthcheck"
)

// A service with externalTrafficPolicy: Local has two endpoints on this
// node. A load balancer sends a request to its health-check NodePort.
func Example() {
	server, err := healthcheck.NewServiceServer(healthcheck.ServiceConfig{
		NodeName: "node1",
		Healthy:  func() bool { return true },
		Report:   func(e healthcheck.Event) { fmt.Println(e.Message) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { server.Run(ctx) })

	at := unusedPort()
	server.SetAddrs([]netip.Addr{at.Addr()})
	server.SetService(healthcheck.Service{Namespace: "shop", Name: "web", Port: at.Port(), LocalEndpoints: 2})
	fmt.Println(get(at))
	cancel()
	running.Wait()

	// Output:
	// 200 {
	// 	"service": {
	// 		"namespace": "shop",
	// 		"name": "web"
	// 	},
	// 	"localEndpoints": 2,
	// 	"serviceProxyHealthy": true
	// }
}

// unusedPort returns a port of 127.0.0.1 that no program listens on.
func unusedPort() netip.AddrPort {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// get returns the status and the body of a response. It retries until the
// server listens.
func get(at netip.AddrPort) (status int, body string) {
	for range 100 {
		resp, err := http.Get("http://" + at.String())
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	return 0, ""
}
