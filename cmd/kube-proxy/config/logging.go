package config

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// ApplyLogging configures klog. It must be called at most once in a process,
// and before other goroutines log.
func (o *Options) ApplyLogging() error {
	logs.InitLogs()
	return logsapi.ValidateAndApplyAsField(&o.Configuration.Logging, o.FeatureGate, field.NewPath("logging"))
}
