package config

import (
	_ "embed" // the list of gates
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/featuregate"
)

// KubernetesVersion is the version of the kube-proxy that this command
// replaces. previousVersion is the version before it.
const (
	KubernetesVersion = "1.36"
	previousVersion   = "1.35"
)

//go:embed features.txt
var featureList string

// featureSpecs and featureNeeds are the specifications and the dependencies
// of feature gates.
type (
	featureSpecs map[featuregate.Feature]featuregate.FeatureSpec
	featureNeeds map[featuregate.Feature][]featuregate.Feature
)

// knownFeatures parses features.txt. A line has a name, a stage, on or off,
// and optionally "locked" and "needs:NAME" for each gate that this one
// depends on.
func knownFeatures(list string) (featureSpecs, featureNeeds) {
	specs, needs := make(featureSpecs), make(featureNeeds)
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] == "#" {
			continue
		}
		name := featuregate.Feature(words[0])
		spec := featuregate.FeatureSpec{Default: words[2] == "on", LockToDefault: slices.Contains(words[3:], "locked")}
		switch words[1] {
		case "ALPHA":
			spec.PreRelease = featuregate.Alpha
		case "BETA":
			spec.PreRelease = featuregate.Beta
		case "DEPRECATED":
			spec.PreRelease = featuregate.Deprecated
		default:
			spec.PreRelease = featuregate.GA
		}
		specs[name] = spec
		for _, w := range words[3:] {
			if other, ok := strings.CutPrefix(w, "needs:"); ok {
				needs[name] = append(needs[name], featuregate.Feature(other))
			}
		}
	}
	return specs, needs
}

// newFeatureGate returns the gates of kube-proxy with these settings, and the
// invalid settings.
func newFeatureGate(settings map[string]bool) (featuregate.MutableFeatureGate, []problem) {
	gate := featuregate.NewVersionedFeatureGate(utilversion.MustParse(KubernetesVersion))
	specs, needs := knownFeatures(featureList)
	known := gate.GetAll() // AllAlpha and AllBeta
	maps.DeleteFunc(specs, func(name featuregate.Feature, _ featuregate.FeatureSpec) bool {
		_, ok := known[name]
		return ok
	})
	if err := gate.Add(specs); err != nil {
		return gate, []problem{{"featureGates", err.Error()}}
	}
	if err := gate.AddDependencies(needs); err != nil {
		return gate, []problem{{"featureGates", err.Error()}}
	}
	var found []problem
	bad := func(format string, args ...any) {
		found = append(found, problem{"featureGates", fmt.Sprintf(format, args...)})
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		spec, ok := gate.GetAll()[featuregate.Feature(name)]
		switch value := settings[name]; {
		case !ok:
			bad("unrecognized feature gate: %s: not a feature gate of kube-proxy v%s", name, KubernetesVersion)
		case spec.LockToDefault && spec.Default != value:
			bad("cannot set feature gate %s to %t, feature is locked to %t", name, value, spec.Default)
		}
	}
	if len(found) > 0 {
		return gate, found
	}
	if err := gate.SetFromMapWithLogger(logr.Discard(), settings); err != nil {
		bad("%s", oneLine(err))
	}
	return gate, found
}

// clientGates provides the gates of kube-proxy to client-go.
type clientGates struct{ featuregate.FeatureGate }

func (g clientGates) Enabled(name clientfeatures.Feature) bool {
	return g.FeatureGate.Enabled(featuregate.Feature(name))
}

// ApplyFeatureGates applies the feature gates to client-go and registers the
// metric kubernetes_feature_enabled, as kube-proxy does. It must be called
// before client-go is used.
func (o *Options) ApplyFeatureGates() {
	clientfeatures.ReplaceFeatureGates(clientGates{o.FeatureGate})
	o.FeatureGate.AddMetrics()
}

// clientFeatures collects the names of client-go's gates.
type clientFeatures map[string]bool

func (f clientFeatures) Add(in map[clientfeatures.Feature]clientfeatures.FeatureSpec) error {
	for name := range in {
		f[string(name)] = true
	}
	return nil
}

// gateExternalIPs is the feature gate of spec.externalIPs of Services.
// Disabling it protects against CVE-2020-8554 (KEP-5707).
const gateExternalIPs = "AllowServiceExternalIPs"

// featuresWithEffect returns the names of the gates that have an effect.
func featuresWithEffect() map[string]bool {
	effective := clientFeatures{
		"AllAlpha": true, "AllBeta": true,
		"ContextualLogging": true, "LoggingAlphaOptions": true, "LoggingBetaOptions": true,
		"ComponentFlagz": true, "ComponentStatusz": true, gateExternalIPs: true,
	}
	if err := clientfeatures.AddFeaturesToExistingFeatureGates(effective); err != nil {
		panic(err) // clientFeatures.Add returns no error
	}
	return effective
}

// featureWarnings returns a warning for each setting that has no effect, and
// for each that a future version will refuse. AllowServiceExternalIPs causes
// no warning: it is GA, but its purpose is to be disabled.
func featureWarnings(settings map[string]bool) []string {
	specs, _ := knownFeatures(featureList)
	effective := featuresWithEffect()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		spec, ok := specs[featuregate.Feature(name)]
		switch {
		case !ok || name == gateExternalIPs:
		case spec.PreRelease == featuregate.GA || spec.PreRelease == featuregate.Deprecated:
			out = append(out, fmt.Sprintf("feature gate %s will be removed in a future release: do not set it", name))
		case !effective[name] && spec.Default != settings[name]:
			out = append(out, fmt.Sprintf("feature gate %s has no effect on nftproxy", name))
		}
	}
	return out
}
