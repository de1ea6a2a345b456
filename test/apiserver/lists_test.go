package apiserver

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/test/cluster"
)

// TestFirstLists gives the subject access to Services but not to
// EndpointSlices, or the reverse. It must not write then, neither on an empty
// node nor on one with rules.
func TestFirstLists(t *testing.T) {
	t.Parallel()
	for _, hidden := range []string{"endpointslices", "services"} {
		t.Run(hidden, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			web := w.createService("web", "a1 b1")
			p := w.subject()

			role := w.hide(hidden)
			begin := time.Now()
			p.start()
			w.awaitRefusals(hidden, begin)
			p.notHealthy()
			if tables := w.tables(w.Node1); strings.Contains(tables, web.Spec.ClusterIP) {
				t.Errorf("tables without a list of %s: got\n%s", hidden, tables)
			}
			w.setRole(role)
			web.servedBy("a1 b1")
			p.awaitHealth()

			p.kill()
			before := w.tables(w.Node1)
			w.hide(hidden)
			stream := web.startStream(t)
			begin = time.Now()
			p.start()
			w.awaitRefusals(hidden, begin)
			p.notHealthy()
			w.expectTables("without a list of "+hidden, before)
			stream.pass(100)
			stream.mustNotFail()
			web.setEndpoints("a2")
			w.setRole(role)
			web.servedBy("a2")
		})
	}
}

// hide removes a resource from the role of the proxy and returns the earlier
// role.
func (w *world) hide(resource string) *rbacv1.ClusterRole {
	w.t.Helper()
	role, err := w.Admin().RbacV1().ClusterRoles().Get(w.ctx(), roleName, metav1.GetOptions{})
	w.must(err)
	less := role.DeepCopy()
	less.Rules = slices.DeleteFunc(less.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, resource)
	})
	w.setRole(less)
	return role
}

func (w *world) setRole(role *rbacv1.ClusterRole) {
	w.t.Helper()
	role.ResourceVersion = ""
	_, err := w.Admin().RbacV1().ClusterRoles().Update(w.ctx(), role, metav1.UpdateOptions{})
	w.must(err)
}

// awaitRefusals waits until the API server has refused a resource several
// times since a time.
func (w *world) awaitRefusals(resource string, since time.Time) {
	w.t.Helper()
	w.awaitRequests(3, resource, since, func(r cluster.Request) bool { return !r.Allowed() })
}

// notHealthy checks that a proxy runs before its first sync, and that its
// health server, if it answers, has another status than 200 at /healthz and
// 200 at /livez. kube-proxy's /healthz is 200 from the start.
func (p *proxy) notHealthy() {
	p.t.Helper()
	if !p.running() {
		p.t.Errorf("%s: %v", p.name, context.Cause(p.process.Running))
	}
	if answer, err := p.get(healthAddress, "/livez"); err == nil && answer.StatusCode != http.StatusOK {
		p.t.Errorf("/livez of %s before the first sync: got %s, want 200: %s", p.name, answer.Status, answer.body)
	}
	if p.name == upstream {
		return
	}
	if answer, err := p.get(healthAddress, "/healthz"); err == nil && answer.StatusCode == http.StatusOK {
		p.t.Errorf("/healthz of %s before the first sync: got 200, want 503: %s", p.name, answer.body)
	}
}
