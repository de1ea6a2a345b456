package conntrack

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Only clients that may have an established TCP connection get a challenge, and
// a limited number of them.
func TestChallengedClients(t *testing.T) {
	const client, vip, endpoint = "10.0.0.1:4000", "10.96.0.10:80", "10.244.0.5:8080"
	const client6, vip6, endpoint6 = "[fd00::1]:4000", "[fd96::10]:80", "[fd24::5]:8080"
	established := newFlow(tcp, client, vip, endpoint).inState(3)
	for name, tc := range map[string]struct {
		flow trackedFlow
		want bool
	}{
		"ESTABLISHED": {established, true},
		"IPv6":        {newFlow(tcp, client6, vip6, endpoint6).inState(3), true},
		"CLOSE_WAIT":  {established.inState(5), true},
		"SYN_SENT":    {established.inState(1), false},
		"SYN_RECV":    {established.inState(2), false},
		"SYN_SENT2":   {established.inState(9), false},
		"SCTP":        {newFlow(unix.IPPROTO_SCTP, client, vip, endpoint).inState(4), false},
		"UDP":         {newFlow(udp, client, vip, endpoint), false},
	} {
		var c challenges
		c.add([]trackedFlow{tc.flow})
		if got := len(c.clients) == 1 && c.clients[0] == tc.flow.original; got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	var c challenges
	for range 2 * maxChallenges {
		c.add([]trackedFlow{established})
	}
	if len(c.clients) != maxChallenges {
		t.Errorf("got %d clients, want %d", len(c.clients), maxChallenges)
	}
}

// Without CAP_NET_RAW, connections are deleted without challenges.
func TestChallengesWithoutPrivilege(t *testing.T) {
	ns := newNode(t)
	c := ns.open(t)
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		if err := unix.Capset(&header, &sets[0]); err != nil {
			t.Error(err)
		}
		failed <- c.ChallengeClients()
	}()
	if err := <-failed; !errors.Is(err, unix.EPERM) {
		t.Errorf("got %v, want EPERM", err)
	}
	ns.injector(t).add(t, newFlow(tcp, "10.0.0.1:4000", "10.96.0.10:80", "10.244.0.5:8080"))
	f := onAllAddrs()
	f.Remove(removalOf("10.244.0.5:8080", "10.96.0.10:80"))
	todo := f.take()
	if stats, err := c.clean(t.Context(), f, &todo); err != nil || stats.Deleted != 1 {
		t.Errorf("got %+v, %v, want one deleted flow", stats, err)
	}
	c.challenges.send(t.Context())
}
