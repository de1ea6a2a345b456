package lab

import (
	"strings"
	"testing"
)

// The kernel computes the checksum of a packet that it translates, and
// decodeSCTP accepts no other one: see the packet test sctp.
func TestDecodeSCTP(t *testing.T) {
	for chunk, cookie := range map[byte]string{sctpInit: "", sctpInitAck: "pod 10.0.0.1:1\n"} {
		packet := newSCTP(1, 2, chunk, []byte(cookie))
		if got, ok := decodeSCTP(packet); !ok || got.Source != 1 || got.Destination != 2 || got.Chunk != chunk ||
			strings.TrimRight(string(got.Cookie[:]), "\x00") != cookie {
			t.Errorf("got %+v (%t), want chunk %d from 1 to 2 with the cookie %q", got, ok, chunk, cookie)
		}
		for length := range packet {
			if got, ok := decodeSCTP(packet[:length]); ok {
				t.Errorf("%d of %d bytes: got %+v, want an invalid packet", length, len(packet), got)
			}
		}
		packet[0]++
		if got, ok := decodeSCTP(packet); ok {
			t.Errorf("packet with a wrong checksum: got %+v", got)
		}
	}
}
