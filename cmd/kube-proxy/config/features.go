package config

import (
	"cmp"
	"context"
	_ "embed" // the list of gates
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	clientfeatures "k8s.io/client-go/features"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/metrics/prometheus/feature"
	"k8s.io/klog/v2"
)

// KubernetesVersion is the version of the kube-proxy that this command
// replaces. Files of versions 1.33 and later are accepted.
const KubernetesVersion = "1.37"

//go:embed features.txt
var featureList string

// knownFeatures parses features.txt. It maps feature gates to their state in
// KubernetesVersion, the last column, nil if that version does not have the
// gate any more.
func knownFeatures(list string) map[string]*featuregate.FeatureSpec {
	specs := make(map[string]*featuregate.FeatureSpec)
	for line := range strings.Lines(list) {
		if words := strings.Fields(line); len(words) == 3 && words[0] != "#" {
			specs[words[0]] = featureSpec(words[2])
		}
	}
	return specs
}

// featureStages are the stages in features.txt.
var featureStages = map[string]featuregate.FeatureSpec{
	"ALPHA":      {PreRelease: featuregate.Alpha},
	"BETA":       {PreRelease: featuregate.Beta},
	"DEPRECATED": {PreRelease: featuregate.Deprecated},
	"GA":         {PreRelease: featuregate.GA},
}

// featureSpec parses a state, STAGE:DEFAULT[:locked] or "-".
func featureSpec(state string) *featuregate.FeatureSpec {
	if state == "-" {
		return nil
	}
	words := strings.Split(state, ":")
	spec := featureStages[words[0]]
	spec.Default, spec.LockToDefault = words[1] == "on", len(words) > 2
	return &spec
}

// newFeatureGate returns the gates of KubernetesVersion with these settings,
// and a warning for each setting that it ignores or that has no effect. It
// adds an error to v for each invalid setting.
//
// A file of a newer or older Kubernetes must not end the proxy. Therefore
// unknown gates, other values of locked gates and unmet dependencies between
// gates are not errors, unlike in kube-proxy.
func newFeatureGate(settings map[string]bool, v *validator) (_ featuregate.MutableFeatureGate, warnings []string) {
	const field = "featureGates"
	gate := featuregate.NewVersionedFeatureGate(utilversion.MustParse(KubernetesVersion))
	specs, present := knownFeatures(featureList), make(map[featuregate.Feature]featuregate.FeatureSpec)
	for name, spec := range specs {
		if spec != nil {
			present[featuregate.Feature(name)] = *spec
		}
	}
	if err := gate.Add(present); err != nil {
		v.bad(field, "%v", err)
	}
	effective := featuresWithEffect()
	valid := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if !featureName.MatchString(name) {
			v.bad(field, "%q is not the name of a feature gate", name)
			continue
		}
		spec, known := specs[name]
		if w := featureWarning(name, settings[name], spec, known, effective[name]); w != "" {
			warnings = append(warnings, w)
		}
		if spec != nil && (!spec.LockToDefault || spec.Default == settings[name]) {
			valid[name] = settings[name]
		}
	}
	if err := gate.SetFromMapWithLogger(logr.Discard(), valid); err != nil {
		v.bad(field, "%s", oneLine(err))
	}
	return gate, warnings
}

var featureName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)

// featureWarning returns a warning for a setting that is ignored or has no
// effect, and for one that a future version will not have. spec is nil if
// KubernetesVersion does not have the gate.
func featureWarning(name string, value bool, spec *featuregate.FeatureSpec, known, effective bool) string {
	switch {
	case !known:
		return fmt.Sprintf("feature gate %s is unknown to kube-proxy v%s: ignored", name, KubernetesVersion)
	case inertFeatures[name] != "":
		return fmt.Sprintf("feature gate %s has no effect: %s", name, inertFeatures[name])
	case spec == nil || !effective:
		return fmt.Sprintf("feature gate %s has no effect on nftproxy", name)
	case spec.LockToDefault && spec.Default != value:
		return fmt.Sprintf("feature gate %s is locked to %t in kube-proxy v%s: %t is ignored",
			name, spec.Default, KubernetesVersion, value)
	case name == gateExternalIPs: // GA, but its purpose is to be disabled
		return ""
	case spec.PreRelease == featuregate.GA || spec.PreRelease == featuregate.Deprecated:
		return fmt.Sprintf("feature gate %s will be removed in a future release: do not set it", name)
	}
	return ""
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
	// AddMetrics of the gates takes 10 ms: for each gate, it copies the names
	// of all gates that were queried.
	set := map[string]bool{}
	if err := cliflag.NewMapStringBool(&set).Set(fmt.Sprint(o.FeatureGate)); err != nil {
		klog.ErrorS(err, "Failed to read the feature gates for their metric")
	}
	for name, spec := range o.FeatureGate.GetAll() {
		enabled, ok := set[string(name)]
		enabled = cmp.Or(enabled, !ok && spec.Default)
		feature.RecordFeatureInfo(context.Background(), string(name), string(spec.PreRelease), enabled)
	}
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

// gateLocalhostNodePorts is the feature gate of NodePorts on loopback
// addresses (KEP-6032).
const gateLocalhostNodePorts = "KubeProxyNFTablesLocalhostNodePorts"

// inertFeatures maps feature gates of kube-proxy without effect to the reason.
var inertFeatures = map[string]string{
	"NFTablesNetlink":   "nftproxy always uses netlink",
	"NFTablesProxyMode": "nftproxy has no other mode",
	"KubeProxyIPVS":     noIPVS,
}

// featuresWithEffect returns the names of the gates that have an effect.
func featuresWithEffect() map[string]bool {
	effective := clientFeatures{
		"AllAlpha": true, "AllBeta": true,
		"ContextualLogging": true, "LoggingAlphaOptions": true, "LoggingBetaOptions": true,
		"ComponentFlagz": true, "ComponentStatusz": true, gateExternalIPs: true, gateLocalhostNodePorts: true,
	}
	if err := clientfeatures.AddFeaturesToExistingFeatureGates(effective); err != nil {
		panic(err) // clientFeatures.Add returns no error
	}
	return effective
}
