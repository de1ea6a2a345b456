package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNFT(t *testing.T) {
	for _, test := range []struct {
		script, reason string
		result         Result
	}{
		{"echo 'nftables v1.0.2 (Lester Gooch)'", "nft 1.0.2 aborts", Warn},
		{"echo 'nftables v0.9.8 (E.D.S.)'", "nft 0.9.8 aborts", Warn},
		{"echo 'nftables v1.0.6 (Lester Gooch #5)'", "nft 1.0.6 lists the tables", OK},
		{"echo 'nftables v1.0.6.1 (Lester Gooch #5)'", "nft 1.0.6.1 lists the tables", OK},
		{"echo 'nftables v1.1.3 (Commodore Bullmoose #4)'", "nft 1.1.3 lists the tables", OK},
		{"echo what", `got "what`, Skipped},
		{"exit 1", "exit status 1", Skipped},
		{"", "not installed", Skipped},
	} {
		folder := t.TempDir()
		t.Setenv("PATH", folder)
		if test.script != "" {
			program := []byte("#!/bin/sh\n" + test.script + "\n")
			if err := os.WriteFile(filepath.Join(folder, "nft"), program, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if f := checkNFT(t.Context(), nil); f.Result != test.result || !strings.Contains(f.Reason, test.reason) {
			t.Errorf("%s: got %+v, want %s: %s", test.script, f, test.result, test.reason)
		}
	}
}
