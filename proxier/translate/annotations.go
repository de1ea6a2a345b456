package translate

import (
	"fmt"
	"strconv"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// The annotations of Services and EndpointSlices that the proxy reads.
const (
	// AnnotationMetrics, with the value "true", selects a Service whose
	// connections are counted.
	AnnotationMetrics = "nftproxy.io/metrics"
	// AnnotationBalance is the way in which a Service selects an endpoint:
	// random, source-hash or source-port-hash.
	AnnotationBalance = "nftproxy.io/balance"
	// AnnotationHashTableSize is the number of rows of a Service's hash table.
	AnnotationHashTableSize = "nftproxy.io/hash-table-size"
	// AnnotationEject, with the value "false", makes new connections not avoid
	// endpoints of a Service that do not answer.
	AnnotationEject = "nftproxy.io/eject"
	// AnnotationHealthCheck is tcp, followed by fields of a
	// cluster.HealthCheck: this node checks the endpoints of a Service.
	AnnotationHealthCheck = "nftproxy.io/health-check"
	// AnnotationRetry is true or false: whether connections to a Service draw
	// another endpoint if they get no answer.
	AnnotationRetry = "nftproxy.io/retry"
	// AnnotationWeight is the weight of the endpoints of an EndpointSlice.
	AnnotationWeight = "nftproxy.io/weight"
)

// balance returns how a Service selects an endpoint. Session affinity has
// priority over the annotation.
func (p *parser) balance(annotations map[string]string, affinity bool) (b cluster.Balance) {
	text, set := annotations[AnnotationBalance]
	if !set {
		return cluster.BalanceRandom
	}
	err := b.UnmarshalText([]byte(text))
	if err == nil && affinity && b != cluster.BalanceRandom {
		b, err = cluster.BalanceRandom, fmt.Errorf("%s has no effect with sessionAffinity ClientIP", b)
	}
	if err != nil {
		p.annotationProblem(AnnotationBalance, err)
	}
	return b
}

// retry returns whether connections to a Service without an answer draw another
// endpoint.
func (p *parser) retry(annotations map[string]string) cluster.Retry {
	switch text, set := annotations[AnnotationRetry]; {
	case text == "true":
		return cluster.RetryOn
	case text == "false":
		return cluster.RetryOff
	case set:
		p.annotationProblem(AnnotationRetry, fmt.Errorf("%.60q is neither true nor false", text))
	}
	return cluster.RetryDefault
}

// hashTableSize returns the size of a Service's hash table, 0 for the default.
func (p *parser) hashTableSize(annotations map[string]string) int {
	return p.number(annotations, AnnotationHashTableSize, cluster.MinHashTableSize, cluster.MaxHashTableSize, 0)
}

// noEject reports whether endpoints of a Service are never ejected.
func (p *parser) noEject(annotations map[string]string) bool {
	text, set := annotations[AnnotationEject]
	if set && text != "true" && text != "false" {
		p.annotationProblem(AnnotationEject, fmt.Errorf("%.60q is neither true nor false", text))
	}
	return text == "false"
}

// healthCheck returns how the endpoints of a Service are checked, nil for not
// at all.
func (p *parser) healthCheck(annotations map[string]string) *cluster.HealthCheck {
	text, set := annotations[AnnotationHealthCheck]
	if !set {
		return nil
	}
	check := new(cluster.HealthCheck)
	if err := check.UnmarshalText([]byte(text)); err != nil {
		p.annotationProblem(AnnotationHealthCheck, err)
		return nil
	}
	return check
}

// weight returns the weight of the endpoints of an EndpointSlice.
func (p *parser) weight(annotations map[string]string) cluster.Weight {
	return cluster.WeightOf(p.number(annotations, AnnotationWeight, 0, cluster.MaxWeight, cluster.Weight(0).Int()))
}

// number returns the value of an annotation, or a default if there is no valid
// one.
func (p *parser) number(annotations map[string]string, name string, low, high, otherwise int) int {
	text, set := annotations[name]
	if !set {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		p.annotationProblem(name, fmt.Errorf("%.60q is not a number from %d to %d", text, low, high))
		return otherwise
	}
	return n
}

func (p *parser) annotationProblem(name string, err error) {
	p.problem(fmt.Sprintf("metadata.annotations[%s]", name), err)
}
