package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// Kubectl runs kubectl as administrator and returns what it prints. The error tells what it printed on its standard error.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := c.config.Namespace.Command(ctx, filepath.Join(c.config.Programs, "kubectl"), args...)
	cmd.Env = []string{"KUBECONFIG=" + c.kubeconfig, "HOME=" + c.config.Dir}
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, &stderr)
	}
	return string(out), nil
}
