package conntrack

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
)

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
