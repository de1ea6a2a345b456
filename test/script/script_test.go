package script_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/script"
)

func TestScripts(t *testing.T) {
	known := func(name string) (bool, error) { return name == "known", nil }
	n := 0
	setup := func(*script.Env) (map[string]script.Command, error) {
		return script.Steps(map[string]any{
			"count": func() int {
				n++
				return n
			},
			"say":  func(lines ...string) string { return strings.Join(lines, "\n") + "\n" },
			"fail": func(_ *script.Script, words []string) error { return errors.New(strings.Join(words, " ")) },
			"typed": func(n uint16, d time.Duration, addrs ...netip.Addr) string {
				return fmt.Sprintln(n, d, addrs)
			},
		}), nil
	}
	script.Run(t, script.Suite{Patience: time.Minute, Condition: known, Setup: setup})
}
