package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// Listeners on an address with a zone, and on one family, need the network of
// the family. Bindings are in order.
func TestBindings(t *testing.T) {
	s, err := NewServiceServer(ServiceConfig{Healthy: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range []Service{
		{Namespace: "b", Name: "a", Port: 31001}, {Namespace: "a", Name: "b", Port: 31000}, {Namespace: "a", Name: "a"},
	} {
		s.SetService(service)
	}
	var got []string
	bind := func() {
		for _, b := range s.desired() {
			network, address := b.listenArgs()
			got = append(got, fmt.Sprint(b.service, " ", network, " ", address))
		}
	}
	bind()
	s.SetAddrs([]netip.Addr{netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("192.0.2.1")})
	bind()
	want := []string{
		"a/b tcp :31000", "b/a tcp :31001", "a/b tcp4 192.0.2.1:31000", "a/b tcp6 [fe80::1%eth0]:31000",
		"b/a tcp4 192.0.2.1:31001", "b/a tcp6 [fe80::1%eth0]:31001",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestNewServersWithoutFunctions(t *testing.T) {
	if _, err := NewServiceServer(ServiceConfig{}); err == nil {
		t.Error("got no error without Healthy")
	}
	for _, config := range []ProxyConfig{
		{}, {Health: func() []FamilyHealth { return nil }}, {NodeEligible: func() bool { return true }},
	} {
		if _, err := NewProxyServer(config); err == nil {
			t.Errorf("%+v: got no error", config)
		}
	}
	s := NewHTTPServer(HTTPConfig{}) // without an address, it does nothing
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := errors.Join(s.Listen(ctx), s.Run(ctx)); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}
