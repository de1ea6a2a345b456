package cluster

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestCompareEndpointKeys(t *testing.T) {
	want := []EndpointKey{
		{"b", addr("9.0.0.1")}, {"a", addr("10.0.0.1")}, {"b", addr("10.0.0.1")}, {"a", addr("fd00::1")},
	}
	got := []EndpointKey{want[3], want[2], want[0], want[1]}
	if slices.SortFunc(got, EndpointKey.Compare); !slices.Equal(got, want) {
		t.Errorf("got order %v, want %v", got, want)
	}
	if got := want[0].Compare(want[0]); got != 0 {
		t.Errorf("equal keys: got %d, want 0", got)
	}
}

func TestRank(t *testing.T) {
	for _, tt := range []struct {
		ready, serving, terminating bool
		want                        int
	}{
		{true, true, false, 2},
		{true, false, false, 2}, // publishNotReadyAddresses
		{true, true, true, 2},
		{false, true, true, 1},
		{false, true, false, 0},
		{false, false, true, 0},
		{false, false, false, 0},
	} {
		e := &Endpoint{Ready: tt.ready, Serving: tt.serving, Terminating: tt.terminating}
		if got := e.Rank(); got != tt.want {
			t.Errorf("ready %v, serving %v, terminating %v: got %d, want %d",
				tt.ready, tt.serving, tt.terminating, got, tt.want)
		}
	}
}

// Equal compares each field.
func TestEqual(t *testing.T) {
	checkEqual(t, (*Endpoint).Equal)
	checkEqual(t, (*Node).Equal)
	checkEqual(t, (*Hints).equal)
}

// checkEqual compares structs that have one field each with empty structs.
func checkEqual[T any](t *testing.T, equal func(a, b *T) bool) {
	t.Helper()
	values := map[reflect.Kind]any{
		reflect.Bool: true, reflect.String: "x", reflect.Int8: int8(1), reflect.Struct: addr("10.0.0.1"),
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if f.Anonymous {
			continue
		}
		var one, same, empty T
		value := reflect.ValueOf(values[f.Type.Kind()])
		switch f.Type.Kind() {
		case reflect.Slice:
			value = reflect.MakeSlice(f.Type, 1, 1)
		case reflect.Pointer:
			value = reflect.New(f.Type.Elem())
		}
		for _, of := range []*T{&one, &same} {
			reflect.ValueOf(of).Elem().FieldByIndex(f.Index).Set(value.Convert(f.Type))
		}
		if !equal(&one, &same) || equal(&one, &empty) || equal(&empty, &one) {
			t.Errorf("%T: field %s: got equal %v, other %v", one, f.Name, equal(&one, &same), equal(&one, &empty))
		}
	}
}
