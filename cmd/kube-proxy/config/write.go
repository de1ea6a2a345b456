package config

import (
	"fmt"
	"os"

	"k8s.io/klog/v2"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

// WriteConfig writes the configuration to the file of --write-config-to.
// kube-proxy can read it too.
func (o *Options) WriteConfig() error {
	data, err := o.encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.WriteConfigTo, data, 0o666); err != nil {
		return fmt.Errorf("--write-config-to: %w", err)
	}
	klog.InfoS("Wrote configuration", "file", o.WriteConfigTo)
	return nil
}

// encode returns the configuration as YAML. It leaves out our default of
// minSyncPeriod, which is too short for kube-proxy.
func (o *Options) encode() ([]byte, error) {
	c := o.Configuration.DeepCopy()
	if o.minSyncPeriodUnset {
		c.NFTables.MinSyncPeriod.Duration = 0
	}
	c.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
	data, err := yaml.Marshal(c)
	if own := o.cmd.ownFields(); err == nil && len(own) > 0 {
		var section []byte
		section, err = yaml.Marshal(map[string]any{ownSection: own})
		data = append(data, section...)
	}
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	return data, nil
}
