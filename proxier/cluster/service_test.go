package cluster

import (
	"slices"
	"testing"
)

func TestServiceName(t *testing.T) {
	name := ServiceName{"default", "web"}
	if got, want := name.WithPort("http").String(), "default/web:http"; got != want {
		t.Errorf("named port: got %q, want %q", got, want)
	}
	if got, want := name.WithPort("").String(), "default/web"; got != want {
		t.Errorf("port without a name: got %q, want %q", got, want)
	}
}

func TestCompareServiceNames(t *testing.T) {
	want := []ServiceName{{"a", "z"}, {"b", "x"}, {"b", "y"}}
	got := []ServiceName{want[2], want[0], want[1]}
	if slices.SortFunc(got, ServiceName.Compare); !slices.Equal(got, want) {
		t.Errorf("got order %v, want %v", got, want)
	}
}

func TestProtocol(t *testing.T) {
	for p, want := range map[Protocol]string{TCP: "tcp", UDP: "udp", SCTP: "sctp", 50: "50"} {
		if got := p.String(); got != want {
			t.Errorf("protocol %d: got %q, want %q", uint8(p), got, want)
		}
	}
}
