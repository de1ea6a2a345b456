package translate

import (
	"errors"
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

func TestHashTableSizeAnnotation(t *testing.T) {
	for value, want := range map[string]struct {
		size    int
		problem string
	}{
		"16":     {16, ""},
		"65536":  {65536, ""},
		"15":     {0, `"15" is not a number from 16 to 65536`},
		"65537":  {0, `"65537" is not a number from 16 to 65536`},
		"-251":   {0, `"-251" is not a number from 16 to 65536`},
		"1e3":    {0, `"1e3" is not a number from 16 to 65536`},
		" 251":   {0, `" 251" is not a number from 16 to 65536`},
		"":       {0, `"" is not a number from 16 to 65536`},
		"\n\x1b": {0, `"\n\x1b" is not a number from 16 to 65536`},
	} {
		s, problems := serviceOf(apiService(func(s *corev1.Service) {
			s.Annotations = map[string]string{AnnotationHashTableSize: value}
		}))
		if s.HashTableSize != want.size {
			t.Errorf("%q: got %d, want %d", value, s.HashTableSize, want.size)
		}
		expectProblem(t, problems, AnnotationHashTableSize, want.problem)
	}
}

func TestWeightAnnotation(t *testing.T) {
	for value, want := range map[string]struct {
		weight  int
		problem string
	}{
		"0":   {0, ""},
		"1":   {1, ""},
		"100": {100, ""},
		"101": {1, `"101" is not a number from 0 to 100`},
		"-1":  {1, `"-1" is not a number from 0 to 100`},
		"5%":  {1, `"5%" is not a number from 0 to 100`},
		"":    {1, `"" is not a number from 0 to 100`},
	} {
		_, endpoints, problems := endpointsOf(&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: "svc-1", Labels: map[string]string{discoveryv1.LabelServiceName: "svc"},
				Annotations: map[string]string{AnnotationWeight: value},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		})
		if got := endpoints[0].Weight.Int(); got != want.weight {
			t.Errorf("%q: got %d, want %d", value, got, want.weight)
		}
		expectProblem(t, problems, AnnotationWeight, want.problem)
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
