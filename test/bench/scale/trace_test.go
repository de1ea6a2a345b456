package main

import (
	"testing"
	"time"
)

func TestTraceAdds(t *testing.T) {
	trace := &account{begun: map[string]float64{}}
	for _, line := range []string{
		"# tracer: nop",
		"             nft-4711    [001] .....  1234.500000: sys_sendmsg(fd: 3, msg: 7ffc01, flags: 0)",
		"    kube proxy-4712    [000] .....  1234.500100: sys_sendto(fd: 7, buff: c0, len: 24, flags: 0)",
		"           <...>-4711    [001] .....  1234.750000: sys_sendmsg -> 0x14",
		"    kube proxy-4712    [000] .....  1234.500200: sys_sendto -> 0x18",
		"             nft-4711    [001] .....  1234.760000: sys_recvmsg -> 0x100",
		"             nft-4711    [001] .....  1234.770000: sys_recvmsg -> 0xfffffffffffffff5",
		"CPU:1 [LOST 12 EVENTS]",
	} {
		trace.add(line)
	}
	want := traffic{sends: 2, sent: 0x14 + 0x18, received: 0x100, longest: 250 * time.Millisecond, lost: true}
	got := trace.total
	got.longest = got.longest.Round(time.Microsecond)
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
