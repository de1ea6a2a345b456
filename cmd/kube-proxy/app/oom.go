package app

import (
	"fmt"
	"os"
	"strconv"

	"k8s.io/klog/v2"
)

// oomScoreFile holds the OOM score adjustment of this process, from -1000
// (never killed) to 1000 (killed first), see proc_pid_oom_score_adj(5).
const oomScoreFile = "/proc/self/oom_score_adj"

// applyOOMScore sets the OOM score adjustment (oomScoreAdj); nil keeps it. A
// lower value needs CAP_SYS_RESOURCE. A failure is logged only, because
// Services can be served without it.
func applyOOMScore(score *int32) {
	if score == nil {
		return
	}
	if err := writeOOMScore(oomScoreFile, *score); err != nil {
		klog.InfoS("Failed to set the OOM score adjustment; a lower value needs CAP_SYS_RESOURCE",
			"oomScoreAdj", *score, "err", err)
	}
}

func writeOOMScore(file string, score int32) error {
	if err := os.WriteFile(file, []byte(strconv.Itoa(int(score))), 0o644); err != nil {
		return fmt.Errorf("write %d: %w", score, err)
	}
	return nil
}
