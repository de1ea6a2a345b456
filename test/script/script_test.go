package script_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/script"
)

func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Setup: func(*script.Env) (map[string]script.Command, error) {
		return map[string]script.Command{
			"say": func(_ *script.Script, args []string) (string, error) {
				return strings.Join(args, "\n") + "\n", nil
			},
			"fail": func(_ *script.Script, args []string) (string, error) {
				return "", errors.New(strings.Join(args, " "))
			},
		}, nil
	}})
}
