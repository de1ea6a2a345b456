package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// awaitNoEjections waits until the proxy ejects no endpoint.
func (n *node) awaitNoEjections(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, time.Second/10, patience, true, func(ctx context.Context) (bool, error) {
		metrics, err := n.get(ctx, "/metrics")
		values := ejected.FindAllStringSubmatch(metrics, -1)
		some := slices.ContainsFunc(values, func(value []string) bool { return value[1] != "0" })
		return err == nil && len(values) > 0 && !some, nil
	})
	if err != nil {
		return fmt.Errorf("the proxy of %s still ejects endpoints: %w", n.Name, err)
	}
	return nil
}

// ejected is the number of ejected endpoints, ejection a line of a proxy's log.
var (
	ejected  = regexp.MustCompile(`(?m)^nftproxy_ejected_endpoints\S* (\d+)$`)
	ejection = regexp.MustCompile(`(?m)^.(\d{4} [\d:.]+) .* reason="EndpointEjected" .*$`)
)

// judgeEjections adds a problem for each ejection of an endpoint that answered.
// Its answers, and those to probes in the two seconds before, are also lost if
// a rule of the node of the endpoint drops packets of all nodes.
func (w *world) judgeEjections(began time.Time) {
	for _, n := range w.nodes {
		log, err := os.ReadFile(n.file(".log"))
		if err != nil {
			w.problem("%v", err)
		}
		for _, match := range ejection.FindAllStringSubmatch(string(log), -1) {
			at, err := time.ParseInLocation("0102 15:04:05.000000", match[1], time.Local)
			if at = at.AddDate(time.Now().Year(), 0, 0); err != nil {
				w.problem("%v", err)
			}
			explains := func(one *window) bool { return one.all && one.overlaps(at.Add(-2*time.Second), at) }
			isOld := at.Before(began) // the folder of the logs was used before
			if !isOld && !slices.ContainsFunc(w.windows, explains) {
				w.problem("%s ejected an endpoint that answers: %s", n.Name, match[0])
			}
		}
	}
}
