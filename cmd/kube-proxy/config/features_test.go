package config

import (
	"strings"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	metricsfeatures "k8s.io/component-base/metrics/features"
	"k8s.io/component-base/metrics/legacyregistry"
	zpagesfeatures "k8s.io/component-base/zpages/features"

	"github.com/nftproxy/nftproxy/test/must"
)

// TestFeatureColumns checks the form of features.txt, and that every gate of
// v1.36.3 and of v1.37.2 is known.
func TestFeatureColumns(t *testing.T) {
	known := knownFeatures(featureList)
	columns := []int{0, 0}
	for line := range strings.Lines(featureList) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) != 3 {
			t.Errorf("%q: got %d words, want 3", line, len(words))
			continue
		}
		if _, ok := known[words[0]]; !ok {
			t.Errorf("%s is not known", words[0])
		}
		for i, state := range words[1:] {
			if state != "-" {
				columns[i]++
			}
		}
	}
	if columns[0] != 242 || columns[1] != 254 {
		t.Errorf("got %v gates in v1.36.3 and v1.37.2, want 242 and 254", columns)
	}
}

// TestFeaturesOfLibraries compares features.txt with the libraries that define
// gates of kube-proxy.
func TestFeaturesOfLibraries(t *testing.T) {
	known := knownFeatures(featureList)
	gate := featuregate.NewVersionedFeatureGate(version137)
	for _, err := range []error{
		logsapi.AddFeatureGates(gate), zpagesfeatures.AddFeatureGates(gate), metricsfeatures.AddFeatureGates(gate),
		clientfeatures.AddVersionedFeaturesToExistingFeatureGates(clientGateAdder{gate}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range gate.GetAll() {
		got := known[string(name)]
		if got == nil || got.Default != want.Default || got.PreRelease != want.PreRelease ||
			got.LockToDefault != want.LockToDefault {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

// TestFeatureMetric compares the metric with the gates, some of them set.
func TestFeatureMetric(t *testing.T) {
	o := parse(t, "--feature-gates=AllAlpha=true,"+gateLocalhostNodePorts+"=false,WatchListClient=false")
	o.ApplyFeatureGates()
	families, err := legacyregistry.DefaultGatherer.Gather()
	must.NoError(t, err)
	got := map[featuregate.Feature]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "kubernetes_feature_enabled" {
				got[featuregate.Feature(m.GetLabel()[0].GetValue())] = m.GetGauge().GetValue() == 1
			}
		}
	}
	for name := range o.FeatureGate.GetAll() {
		if enabled, ok := got[name]; !ok || enabled != o.FeatureGate.Enabled(name) {
			t.Errorf("%s: got %t (found: %t), want %t", name, enabled, ok, !enabled)
		}
	}
}

var version137 = utilversion.MustParse(KubernetesVersion)

// clientGateAdder adds client-go's gates to gates of a component.
type clientGateAdder struct {
	featuregate.MutableVersionedFeatureGate
}

func (a clientGateAdder) AddVersioned(in map[clientfeatures.Feature]clientfeatures.VersionedSpecs) error {
	out := make(map[featuregate.Feature]featuregate.VersionedSpecs)
	for name, specs := range in {
		for _, s := range specs {
			spec := featuregate.FeatureSpec{Version: s.Version, Default: s.Default, LockToDefault: s.LockToDefault}
			switch s.PreRelease {
			case clientfeatures.Alpha:
				spec.PreRelease = featuregate.Alpha
			case clientfeatures.Beta:
				spec.PreRelease = featuregate.Beta
			default:
				spec.PreRelease = featuregate.GA
			}
			out[featuregate.Feature(name)] = append(out[featuregate.Feature(name)], spec)
		}
	}
	return a.MutableVersionedFeatureGate.AddVersioned(out)
}
