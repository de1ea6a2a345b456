package lab

import (
	"strings"
	"testing"
)

func TestSCTPChecksum(t *testing.T) {
	// The check value of CRC-32/ISCSI, another name of CRC32c.
	if got := crcOf([]byte("123456789")); got != 0xe3069283 {
		t.Fatalf("CRC32c of the check string: got %#x", got)
	}
	// Bytes 8 to 11 are the checksum field.
	want := crcOf([]byte("12345678\x00\x00\x00\x00abcdef"))
	if got := sctpChecksum([]byte("123456781234abcdef")); got != want {
		t.Errorf("checksum: got %#x, want %#x", got, want)
	}
}

// crcOf computes CRC32c bit by bit, from its definition (RFC 9260, appendix
// A).
func crcOf(data []byte) uint32 {
	crc := ^uint32(0)
	for _, b := range data {
		crc ^= uint32(b)
		for range 8 {
			crc = crc>>1 ^ 0x82f63b78&-(crc&1)
		}
	}
	return ^crc
}

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
