package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HealthCheck is how this node checks whether TCP endpoints of a Service accept
// connections, in the terms of k8s.io/api/core/v1.Probe.
type HealthCheck struct {
	PeriodSeconds, TimeoutSeconds int
	// FailureThreshold is the number of checks in a row that fail before an
	// endpoint is unhealthy, SuccessThreshold the number of those that succeed
	// before it is healthy again.
	FailureThreshold, SuccessThreshold int
}

// DefaultHealthCheck returns a HealthCheck with the defaults of Kubernetes.
func DefaultHealthCheck() HealthCheck { return HealthCheck{10, 1, 3, 1} }

// Equal reports whether two checks are the same, or both nil.
func (c *HealthCheck) Equal(o *HealthCheck) bool {
	if c == nil || o == nil {
		return c == o
	}
	return *c == *o
}

// Period returns the time between checks of an endpoint.
func (c HealthCheck) Period() time.Duration { return time.Duration(c.PeriodSeconds) * time.Second }

// Timeout returns how long a check waits for an answer.
func (c HealthCheck) Timeout() time.Duration { return time.Duration(c.TimeoutSeconds) * time.Second }

// checkField is a field of a HealthCheck with a number from 1 to most.
type checkField struct {
	name  string
	value *int
	most  int
}

// fields returns the fields. After 3 s, the kernel gives up an attempt to
// connect that repeats its SYN once.
func (c *HealthCheck) fields() []checkField {
	return []checkField{
		{"periodSeconds", &c.PeriodSeconds, 300}, {"timeoutSeconds", &c.TimeoutSeconds, 3},
		{"failureThreshold", &c.FailureThreshold, 10}, {"successThreshold", &c.SuccessThreshold, 10},
	}
}

// String returns the value of an annotation with all fields: tcp
// periodSeconds=10 timeoutSeconds=1 failureThreshold=3 successThreshold=1.
func (c HealthCheck) String() string {
	text := "tcp"
	for _, f := range c.fields() {
		text += fmt.Sprintf(" %s=%d", f.name, *f.value)
	}
	return text
}

// MarshalText implements encoding.TextMarshaler with String.
func (c HealthCheck) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. Fields that the text does
// not have get the defaults of Kubernetes.
func (c *HealthCheck) UnmarshalText(text []byte) error {
	words := strings.Fields(string(text))
	if len(words) == 0 || words[0] != "tcp" {
		return fmt.Errorf("%.60q does not begin with tcp", text)
	}
	check := DefaultHealthCheck()
	left := check.fields()
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		i := slices.IndexFunc(left, func(f checkField) bool { return f.name == name })
		if i < 0 {
			return fmt.Errorf("%.60q is unknown or repeated: want periodSeconds, timeoutSeconds, failureThreshold or "+
				"successThreshold, each with = and a number", word)
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > left[i].most {
			return fmt.Errorf("%s: %.60q is not a number from 1 to %d", name, value, left[i].most)
		}
		*left[i].value = n
		left = slices.Delete(left, i, i+1)
	}
	*c = check
	return nil
}
