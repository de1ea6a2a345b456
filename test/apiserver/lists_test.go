package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestFirstLists lets the subject see all Services and no EndpointSlices, or the other way round: it must not write anything then, on an
// empty node nor on one that has rules.
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
			w.refused(hidden, begin)
			p.notHealthy()
			if tables := w.tables(w.Node1); strings.Contains(tables, web.Spec.ClusterIP) {
				t.Errorf("tables without a list of %s:\n%s", hidden, tables)
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
			w.refused(hidden, begin)
			p.notHealthy()
			if now := w.tables(w.Node1); now != before {
				t.Errorf("tables without a list of %s:\n%s\nbefore:\n%s", hidden, now, before)
			}
			stream.pass(100)
			stream.mustNotFail()
			web.setEndpoints("a2")
			w.setRole(role)
			web.servedBy("a2")
		})
	}
}

// hide takes a resource from the role of the proxy and returns what the role was.
func (w *world) hide(resource string) *rbacv1.ClusterRole {
	w.t.Helper()
	role, err := w.Admin().RbacV1().ClusterRoles().Get(w.ctx(), roleName, metav1.GetOptions{})
	w.must(err)
	less := role.DeepCopy()
	less.Rules = slices.DeleteFunc(less.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, resource) })
	w.setRole(less)
	return role
}

func (w *world) setRole(role *rbacv1.ClusterRole) {
	w.t.Helper()
	role.ResourceVersion = ""
	_, err := w.Admin().RbacV1().ClusterRoles().Update(w.ctx(), role, metav1.UpdateOptions{})
	w.must(err)
}

// refused waits until the proxy was refused a resource several times since then.
func (w *world) refused(resource string, since time.Time) {
	w.t.Helper()
	const several = 3
	eventually(w.t, "refusals of "+resource, func() error {
		requests, err := w.APIServer.Requests()
		if err != nil {
			return err
		}
		count := 0
		for _, r := range requests {
			if r.Object.Resource == resource && r.Received.After(since) && !r.Allowed() {
				count++
			}
		}
		if count < several {
			return fmt.Errorf("%d", count)
		}
		return nil
	})
}

// notHealthy checks that a proxy that has not synced yet runs, and that its health
// server answers accordingly, if it answers yet: /healthz is not 200, /livez is.
// kube-proxy's /healthz is 200 from the start.
func (p *proxy) notHealthy() {
	p.t.Helper()
	if !p.running() {
		p.t.Errorf("%s ended: %v", p.name, p.err)
	}
	if answer, err := p.get(healthAddress, "/livez"); err == nil && answer.StatusCode != http.StatusOK {
		p.t.Errorf("/livez of %s before the first sync: %s: %s", p.name, answer.Status, answer.body)
	}
	if p.name == upstream {
		return
	}
	if answer, err := p.get(healthAddress, "/healthz"); err == nil && answer.StatusCode == http.StatusOK {
		p.t.Errorf("%s is healthy before it has written anything: %s", p.name, answer.body)
	}
}
