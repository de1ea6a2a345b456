package proxier

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// A cleanup deletes the tables of the proxy. Missing tables are not an error.
func TestCleanupLeftovers(t *testing.T) {
	t.Parallel()
	tabletest.NewNamespace(t)
	tabletest.LoadNFT(t, "add table ip kube-proxy\nadd table ip other")
	for range 2 {
		if CleanupLeftovers(t.Context()) {
			t.Error("the cleanup failed")
		}
		if got := strings.TrimSpace(nstest.RunNFT(t, "list tables")); got != "table ip other" {
			t.Errorf("got tables %q, want one of another program", got)
		}
	}
}
