package conntrack

import (
	"errors"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Only clients that may have an established TCP connection get a challenge, and
// a limited number of them.
func TestChallengedClients(t *testing.T) {
	for line, want := range map[string]bool{
		"tcp ESTABLISHED 10.0.0.1:4000 -> 10.96.0.10:80 -> 10.244.0.5:8080":  true,
		"tcp ESTABLISHED [fd00::1]:4000 -> [fd96::10]:80 -> [fd24::5]:8080":  true,
		"tcp CLOSE_WAIT 10.0.0.1:4000 -> 10.96.0.10:80 -> 10.244.0.5:8080":   true,
		"tcp SYN_SENT 10.0.0.1:4000 -> 10.96.0.10:80 -> 10.244.0.5:8080":     false,
		"tcp SYN_RECV 10.0.0.1:4000 -> 10.96.0.10:80 -> 10.244.0.5:8080":     false,
		"tcp SYN_SENT2 10.0.0.1:4000 -> 10.96.0.10:80 -> 10.244.0.5:8080":    false,
		"sctp ESTABLISHED 10.0.0.1:4000 -> 10.96.0.10:80 -> 10.244.0.5:8080": false,
		"udp 10.0.0.1:4000 -> 10.96.0.10:80 -> 10.244.0.5:8080":              false,
	} {
		var c challenges
		flow := parseFlow(line)
		c.add(slices.Repeat([]trackedFlow{flow}, 2*maxChallenges))
		if got := len(c.clients) == maxChallenges && c.clients[0] == flow.original; got != want {
			t.Errorf("%s: got %d challenges, want some: %v", line, len(c.clients), want)
		}
		if len(c.clients) > 0 && !want {
			t.Errorf("%s: got %d challenges, want none", line, len(c.clients))
		}
	}
}

// Without CAP_NET_RAW, connections are deleted without challenges.
func TestChallengesWithoutPrivilege(t *testing.T) {
	c := inNamespace(t, newFlow(tcp, "10.0.0.1:4000", "10.96.0.10:80", "10.244.0.5:8080"))
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
	f := newFrontends()
	f.Remove(removalOf("10.244.0.5:8080", "10.96.0.10:80"))
	todo := f.take()
	if stats, err := c.clean(t.Context(), f, &todo); err != nil || stats.Deleted != 1 {
		t.Errorf("got %+v, %v, want one deleted flow", stats, err)
	}
	c.challenges.send(t.Context())
}
