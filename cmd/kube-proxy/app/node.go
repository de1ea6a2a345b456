package app

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"k8s.io/klog/v2"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/config"
	"github.com/nftproxy/nftproxy/conntrack"
)

// initNode sets the sysctls of connection tracking, which needs a writable
// /proc/sys (--init-only). It returns an error for each that stays unset.
func initNode(o *config.Options) []error {
	loadConntrack()
	outcome := conntrackSettings(&o.Configuration.Conntrack).Apply("/")
	for _, c := range outcome.Changed {
		klog.InfoS("Changed a sysctl of connection tracking", "file", c.File, "from", c.From, "to", c.To)
	}
	if outcome.Warning != nil {
		klog.InfoS("Connection tracking may be slow", "err", outcome.Warning)
	}
	return outcome.Failed
}

// setUpNode applies the settings that are not rules. If a sysctl cannot be
// written, as in an unprivileged container, it logs the error, which unset has,
// and an init container must set the sysctl: Services can be served without it.
func setUpNode(o *config.Options) (unset []string, err error) {
	for _, failure := range initNode(o) {
		denied := func(errno syscall.Errno) bool { return errors.Is(failure, errno) }
		if !slices.ContainsFunc([]syscall.Errno{syscall.EROFS, syscall.EACCES, syscall.EPERM}, denied) {
			err = errors.Join(err, failure)
			continue
		}
		klog.ErrorS(failure, "Failed to set a sysctl of connection tracking")
		unset = append(unset, failure.Error())
	}
	applyOOMScore(o.Configuration.OOMScoreAdj)
	return unset, err
}

// loadConntrack makes the kernel load the module of connection tracking: its
// sysctls do not exist before. It ignores errors, because missing sysctls
// cause an error later.
func loadConntrack() {
	conn, err := conntrack.Open()
	if err != nil {
		return
	}
	defer conn.Close()
	if _, err := conn.Entries(); err != nil {
		klog.V(2).InfoS("Failed to list tracked connections", "err", err)
	}
}

func conntrackSettings(c *v1alpha1.KubeProxyConntrackConfiguration) conntrack.Settings {
	return conntrack.Settings{
		MaxPerCore:            int(*c.MaxPerCore),
		Min:                   int(*c.Min),
		TCPEstablishedTimeout: c.TCPEstablishedTimeout.Duration,
		TCPCloseWaitTimeout:   c.TCPCloseWaitTimeout.Duration,
		TCPBeLiberal:          c.TCPBeLiberal,
		UDPTimeout:            c.UDPTimeout.Duration,
		UDPStreamTimeout:      c.UDPStreamTimeout.Duration,
	}
}

// oomScoreFile holds the OOM score adjustment of this process, from -1000
// (never killed) to 1000 (killed first), see proc_pid_oom_score_adj(5).
const oomScoreFile = "/proc/self/oom_score_adj"

// applyOOMScore sets the OOM score adjustment (oomScoreAdj); nil keeps it. A
// lower value needs CAP_SYS_RESOURCE, which most containers do not have, and
// which serving does not need. So a failure is only logged at -v=4.
func applyOOMScore(score *int32) {
	if score == nil {
		return
	}
	if err := writeOOMScore(oomScoreFile, *score); err != nil {
		klog.V(4).InfoS("The OOM score adjustment stays; a lower value needs CAP_SYS_RESOURCE",
			"oomScoreAdj", *score, "err", err)
	}
}

func writeOOMScore(file string, score int32) error {
	if err := os.WriteFile(file, []byte(strconv.Itoa(int(score))), 0o644); err != nil {
		return fmt.Errorf("write %d: %w", score, err)
	}
	return nil
}
