package app

import (
	"fmt"
	"os"
	"strconv"

	"k8s.io/klog/v2"
)

// oomScoreFile says how soon the kernel ends this process when memory runs out, from -1000, never, to 1000, first (proc_pid_oom_score_adj(5)).
const oomScoreFile = "/proc/self/oom_score_adj"

// applyOOMScore sets the score of this process; nil leaves it (oomScoreAdj). To lower it takes CAP_SYS_RESOURCE. It is not worth
// refusing to serve for: a failure is logged only.
func applyOOMScore(score *int32) {
	if score == nil {
		return
	}
	if err := writeOOMScore(oomScoreFile, *score); err != nil {
		klog.InfoS("The OOM score of this process stays as it is; CAP_SYS_RESOURCE would allow to lower it", "oomScoreAdj", *score, "err", err)
	}
}

func writeOOMScore(file string, score int32) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(strconv.Itoa(int(score))); err != nil {
		return fmt.Errorf("write %d: %w", score, err)
	}
	return nil
}
