package conntrack

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"strings"
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

// A challenge is a SYN-ACK from port 80 of the frontend to the client, with the
// checksum of TCP. The kernel completes the header of IPv4.
func TestChallengePacket(t *testing.T) {
	for client, tt := range map[string]struct{ vip, want string }{
		"10.0.0.1:4000": {"10.96.0.10:80", "450000280000400040060000 0a60000a 0a000001" +
			" 0050 0fa0 00000000 00000000 5012 0000 8b78 0000"},
		"[fd00::1]:4000": {"[fd96::10]:80", "6000000000140640" +
			" fd960000000000000000000000000010 fd000000000000000000000000000001" +
			" 0050 0fa0 00000000 00000000 5012 0000 a53a 0000"},
	} {
		to := tuple{src: netip.MustParseAddrPort(client), dst: netip.MustParseAddrPort(tt.vip)}
		if got := hex.EncodeToString(appendChallenge(nil, to)); got != strings.ReplaceAll(tt.want, " ", "") {
			t.Errorf("%s: got %s, want %s", client, got, tt.want)
		}
	}
}
