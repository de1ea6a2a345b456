package app

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/config"
)

// setUpLogs makes the log as the configuration asks for, and tells there what of it has no effect.
func setUpLogs(o *config.Options) error {
	logs.InitLogs()
	if err := logsapi.ValidateAndApplyAsField(&o.Configuration.Logging, o.FeatureGate, field.NewPath("logging")); err != nil {
		return fmt.Errorf("logging: %w", err)
	}
	for _, w := range o.Warnings() {
		klog.InfoS("Configuration: " + w)
	}
	return nil
}
