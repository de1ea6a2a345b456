package proxier

import (
	"bytes"
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/manifest"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/script"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// oneSync is a handler for manifests that calls done after all objects were
// passed.
type oneSync struct {
	*Proxier
	done context.CancelFunc
}

func (h oneSync) Sync() { h.done() }

// loaded returns a Proxier with the objects of a directory of manifests. It is
// not connected to the kernel.
func loaded(t *testing.T, config Config, dir string) *Proxier {
	t.Helper()
	p, err := assemble(config, nft.IPv4, nft.IPv6)
	must.NoError(t, err)
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	source, err := manifest.New(manifest.Config{Dir: dir, Handler: oneSync{p, done}})
	must.NoError(t, err)
	must.NoError(t, source.Run(ctx))
	if listed, _ := p.tracker.state(); !listed {
		t.Fatal("the first lists are not complete")
	}
	for _, f := range p.families {
		f.handOver(math.MaxInt)
	}
	return p
}

// tablesOf returns the desired tables of a Proxier, in nft syntax.
func tablesOf(t *testing.T, p *Proxier) string {
	t.Helper()
	var text bytes.Buffer
	for _, f := range p.families {
		must.NoError(t, f.table.Fprint(&text))
	}
	return text.String()
}

// servicesOf returns the states of all Services as YAML.
func servicesOf(t *testing.T, p *Proxier) (text string) {
	t.Helper()
	names := slices.Collect(p.families[0].table.ServiceNames())
	slices.SortFunc(names, cluster.ServiceName.Compare)
	for _, name := range names {
		view, _ := p.families[0].table.Service(name)
		for _, f := range p.families[1:] {
			other, _ := f.table.Service(name)
			view.Add(&other)
		}
		out, err := yaml.Marshal(view)
		must.NoError(t, err)
		text += "---\n" + string(out)
	}
	return text
}

// For the manifests of each folder X of testdata/golden, the tables are those
// of X.nft, which nft loads, and the answers to questions about Services are
// the metrics of X.services.yaml.
func TestGolden(t *testing.T) {
	manifests, err := filepath.Glob("testdata/golden/*/*.yaml")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("got no folders of manifests: %v", err)
	}
	for _, file := range manifests {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			tabletest.NewNamespace(t)
			config := sampleConfig()
			config.Rules.NodePortAddresses = ruleset.NodePortAddresses{} // the addresses of the Node object
			p := loaded(t, config, dir)
			got := tablesOf(t, p)
			script.Golden(t, dir+".nft", got)
			tabletest.LoadNFT(t, got)
			script.Golden(t, dir+".services.yaml", servicesOf(t, p))
		})
	}
}
