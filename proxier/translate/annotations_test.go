package translate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

func TestBalanceAnnotation(t *testing.T) {
	for _, tt := range []struct {
		value, problem string
		affinity       bool
		want           cluster.Balance
	}{
		{"random", "", false, cluster.BalanceRandom},
		{"random", "", true, cluster.BalanceRandom},
		{"source-hash", "", false, cluster.BalanceSourceHash},
		{"source-port-hash", "", false, cluster.BalanceSourcePortHash},
		{"source-hash", "source-hash has no effect with sessionAffinity ClientIP", true, cluster.BalanceRandom},
		{"", `"" is neither random, source-hash nor source-port-hash`, false, cluster.BalanceRandom},
		{"sh", `"sh" is neither random, source-hash nor source-port-hash`, true, cluster.BalanceRandom},
		{
			strings.Repeat("x", 1<<18),
			`"` + strings.Repeat("x", 60) + `" is neither random, source-hash nor source-port-hash`,
			false, cluster.BalanceRandom,
		},
	} {
		s, problems := serviceOf(apiService(func(s *corev1.Service) {
			s.Annotations = map[string]string{AnnotationBalance: tt.value}
			if tt.affinity {
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			}
		}))
		if s.Balance != tt.want {
			t.Errorf("%.20q, affinity %v: got %v, want %v", tt.value, tt.affinity, s.Balance, tt.want)
		}
		expectProblem(t, problems, AnnotationBalance, tt.problem)
	}
}

// An invalid number is reported, and replaced by the default.
func TestNumberAnnotations(t *testing.T) {
	const size, weight = AnnotationHashTableSize, AnnotationWeight
	read := map[string]func(value string) (int, []error){
		size: func(value string) (int, []error) {
			s, problems := serviceOf(apiService(func(s *corev1.Service) {
				s.Annotations = map[string]string{size: value}
			}))
			return s.HashTableSize, problems
		},
		weight: func(value string) (int, []error) {
			_, endpoints, problems := endpointsOf(&discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns", Name: "svc-1", Labels: map[string]string{discoveryv1.LabelServiceName: "svc"},
					Annotations: map[string]string{weight: value},
				},
				AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
			})
			return endpoints[0].Weight.Int(), problems
		},
	}
	const sizes, weights = "is not a number from 16 to 65536", "is not a number from 0 to 100"
	for _, tt := range []struct {
		annotation, value string
		want              int
		problem           string
	}{
		{size, "16", 16, ""},
		{size, "257", 257, ""},
		{size, "65536", 65536, ""},
		{size, "15", 0, sizes},
		{size, "65537", 0, sizes},
		{size, "-251", 0, sizes},
		{size, "1e3", 0, sizes},
		{size, " 251", 0, sizes},
		{size, "", 0, sizes},
		{size, "\n\x1b", 0, sizes},
		{weight, "0", 0, ""},
		{weight, "1", 1, ""},
		{weight, "100", 100, ""},
		{weight, "101", 1, weights},
		{weight, "-1", 1, weights},
		{weight, "5%", 1, weights},
		{weight, "", 1, weights},
	} {
		got, problems := read[tt.annotation](tt.value)
		if got != tt.want {
			t.Errorf("%s %q: got %d, want %d", tt.annotation, tt.value, got, tt.want)
		}
		if tt.problem != "" {
			tt.problem = fmt.Sprintf("%q %s", tt.value, tt.problem)
		}
		expectProblem(t, problems, tt.annotation, tt.problem)
	}
}

// Without annotations, nothing is selected.
func TestNoAnnotations(t *testing.T) {
	s, problems := serviceOf(apiService(func(*corev1.Service) {}))
	if s.Balance != cluster.BalanceRandom || s.HashTableSize != 0 || s.Metrics || problems != nil {
		t.Errorf("got %+v, problems %v; want no balance, size and metrics", s, problems)
	}
	if got := new(cluster.Endpoint).Weight.Int(); got != 1 {
		t.Errorf("got default weight %d, want 1", got)
	}
}

// expectProblem checks that the only problem is one of an annotation. "" means
// no problem.
func expectProblem(t *testing.T, problems []error, annotation, want string) {
	t.Helper()
	got := ""
	if err := errors.Join(problems...); err != nil {
		got = err.Error()
	}
	if want != "" {
		want = "metadata.annotations[" + annotation + "]: " + want
	}
	if got != want {
		t.Errorf("got problems %q, want %q", got, want)
	}
}
