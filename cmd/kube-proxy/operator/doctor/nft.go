package doctor

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"

	"k8s.io/apimachinery/pkg/util/version"
)

// oldestNFT is the first release of the program nft that lists the tables.
// Earlier ones abort when they read a key with a generated number.
var oldestNFT = version.MustParseGeneric("1.0.6")

var nftVersion = regexp.MustCompile(`v(\d+(?:\.\d+)+)`)

// checkNFT checks whether the program nft can list the tables. The proxy itself
// does not use it.
func checkNFT(ctx context.Context, _ *node) Finding {
	path, err := exec.LookPath("nft")
	if err != nil {
		return skipped("the program nft is not installed here; nftproxy does not use it")
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return unknown(fmt.Errorf("%s --version: %w", path, err))
	}
	found := nftVersion.FindSubmatch(out)
	if found == nil {
		return unknown(fmt.Errorf("%s --version: got %q", path, out))
	}
	v, err := version.ParseGeneric(string(found[1]))
	switch {
	case err != nil:
		return unknown(fmt.Errorf("%s --version: %w", path, err))
	case v.LessThan(oldestNFT):
		return warn(fmt.Sprintf("nft %s aborts when it lists the ruleset, because of the tables kube-proxy", v),
			fmt.Sprintf("use nft %s or later, nft --terse list chains, or nftproxy explain, services and diff",
				oldestNFT))
	}
	return ok(fmt.Sprintf("nft %s lists the tables", v))
}
