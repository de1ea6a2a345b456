package apiserver

import (
	"os"
	"path/filepath"
)

// onlyNewer returns values that kube-proxy v1.36 refuses. nftproxy accepts
// them, because another version of Kubernetes does.
func onlyNewer() map[string][]string {
	return map[string][]string{
		"showHiddenMetricsForVersion": {`"1.34"`, `"1.36"`},
		"nodePortAddresses": {
			"[localhost]", "[all]", "[primary, 10.0.0.0/8]", "[10.0.0.0/8, primary]", "[primary, localhost]",
		},
		"featureGates": {
			"{NoSuchGate: true}", "{MultiCIDRServiceAllocator: false}", "{GangScheduling: true}",
			"{NFTablesNetlink: false}", "{KubeProxyNFTablesLocalhostNodePorts: true}",
		},
	}
}

// onlyNewer checks that nftproxy accepts values that kube-proxy v1.36 refuses.
func (c *configurations) onlyNewer() {
	file := filepath.Join(c.dir, "newer.conf")
	for name, values := range onlyNewer() {
		for _, value := range values {
			if err := os.WriteFile(file, []byte(document(map[string]string{name: value})), 0o600); err != nil {
				c.t.Fatal(err)
			}
			if _, err := c.write(upstream, []string{"--config", file}); err == nil {
				c.t.Errorf("%s: %s: kube-proxy accepts it", name, value)
			}
			if _, err := c.write(product, []string{"--config", file}); err != nil {
				c.t.Errorf("%s: %s: %v", name, value, err)
			}
		}
	}
}
