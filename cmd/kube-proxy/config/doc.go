// Package config turns the command line and the configuration file of
// kube-proxy (kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration) into
// one validated configuration.
//
// Names, types, defaults and precedence are as in kube-proxy v1.37 in
// nftables mode:
//
//	flags ─────────┐
//	               ├─► defaults ─► feature gates ─► validation
//	--config FILE ─┘
//
// With --config, only the flags without an equivalent field of the file,
// --hostname-override and the logging flags apply in addition to the file.
//
// There are four deliberate differences. An empty mode means nftables. The
// default of minSyncPeriod is 1 ms. An empty --metrics-bind-address disables
// the server. Settings without effect cause a warning
// ([Options.Warnings]).
//
// The package owns flags, defaults, validation, the translation to
// [proxier.Config] and the watch of the configuration file. It does not start
// a proxier, and does not access nftables or the API server. Only
// [Options.ApplyLogging] and [Options.ApplyFeatureGates] change the state of
// the process.
package config
