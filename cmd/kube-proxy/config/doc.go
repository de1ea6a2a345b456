// Package config is the configuration of the kube-proxy command: its command line, its configuration file
// (kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration), their defaults, their validation, and the watch of the file.
//
// Names, types, defaults and precedence are those of kube-proxy v1.36 in nftables mode:
//
//	flags ─────────┐
//	               ├─► defaults ─► sections of this mode ─► feature gates ─► validation ─► Options.Configuration
//	--config FILE ─┘      (with FILE only --hostname-override, --master and the logging flags count besides it)
//
// It differs on purpose in these points: the mode is nftables, also where none is given; minSyncPeriod is DefaultMinSyncPeriod where
// none is given; an empty --metrics-bind-address means what its help says, no server; what is set and has no effect is told
// (Options.Warnings).
//
// It knows nothing of nftables, of the API server, and of what is done with the configuration.
package config
