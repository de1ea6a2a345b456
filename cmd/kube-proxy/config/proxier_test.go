package config

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	logsapi "k8s.io/component-base/logs/api/v1"
)

func TestNodeName(t *testing.T) {
	for _, tt := range []struct {
		override, host string
		err            error
		want, wantErr  string
	}{
		{"", " Host.Example \n", nil, "host.example", ""},
		{"Other", "host", nil, "other", ""},
		{"", " ", nil, "", "the host name is empty; set --hostname-override"},
		{"", "", errors.New("gone"), "", "get the host name: gone; set --hostname-override"},
	} {
		got, err := nodeName(tt.override, func() (string, error) { return tt.host, tt.err })
		if got != tt.want || (err == nil) != (tt.wantErr == "") || err != nil && err.Error() != tt.wantErr {
			t.Errorf("%q, %q: got %q, %v; want %q, %s", tt.override, tt.host, got, err, tt.want, tt.wantErr)
		}
	}
}

func TestApplyLogging(t *testing.T) {
	o := parse(t, "--logging-format=json", "-v=1")
	t.Cleanup(func() {
		if err := logsapi.ResetForTest(o.FeatureGate); err != nil {
			t.Error(err)
		}
	})
	if err := o.ApplyLogging(); err != nil {
		t.Fatal(err)
	}
	if err := o.ApplyLogging(); err == nil {
		t.Error("second call: got no error")
	}
	enabled := func(verbosity int) bool {
		return slog.Default().Enabled(context.Background(), slog.Level(-verbosity))
	}
	if !enabled(1) || enabled(10) {
		t.Errorf("slog: got verbosity 1 %v, 10 %v, want only 1", enabled(1), enabled(10))
	}
}
