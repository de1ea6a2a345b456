package script_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/script"
)

func TestScripts(t *testing.T) {
	known := func(name string) (bool, error) { return name == "known", nil }
	n := 0
	setup := func(*script.Env) (map[string]script.Command, error) {
		return map[string]script.Command{
			"count": func(*script.Script, []string) (string, error) {
				n++
				return fmt.Sprintln(n), nil
			},
			"say": func(_ *script.Script, args []string) (string, error) {
				return strings.Join(args, "\n") + "\n", nil
			},
			"fail": func(_ *script.Script, args []string) (string, error) {
				return "", errors.New(strings.Join(args, " "))
			},
		}, nil
	}
	script.Run(t, script.Suite{Patience: time.Minute, Condition: known, Setup: setup})
}
