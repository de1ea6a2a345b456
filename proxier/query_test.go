package proxier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// While a sync hangs, Status answers, and queries end with their context. After
// the sync they are answered.
func TestQueriesDuringSync(t *testing.T) {
	tabletest.NewNamespace(t)
	began, proceed := make(chan struct{}, 100), make(chan struct{})
	config := sampleConfig()
	config.open = openWith(func(_ *nft.Batch, commit func() error) error {
		began <- struct{}{}
		<-proceed
		return commit()
	})
	p := newTestProxier(t, config, nft.IPv4)
	p.OnServiceAdd(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 80}}},
	})
	if s := p.Status(); s.Listed || s.Node != "node1" || len(s.Families) != 1 || s.Families[0].LastSync != nil {
		t.Errorf("before the first sync: got %+v", s)
	}
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	startLoop(t, p)
	<-began
	if s := p.Status(); !s.Listed || s.Families[0].WaitingSince.IsZero() || !s.Families[0].Synced.IsZero() {
		t.Errorf("during the first sync: got %+v", s)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := p.Query(short, nft.IPv4, func(*table.Table) error { return nil })
	if !errors.Is(err, errBusy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want errBusy and DeadlineExceeded", err)
	}
	close(proceed)
	<-p.Synced()
	var names []cluster.ServiceName
	err = p.Query(t.Context(), nft.IPv4, func(table *table.Table) error {
		names = slices.Collect(table.ServiceNames())
		return errors.New("failed")
	})
	if fmt.Sprint(names) != "[default/web]" || fmt.Sprint(err) != "IPv4: failed" {
		t.Errorf("got Services %v, error %v", names, err)
	}
	if err := p.Query(t.Context(), nft.IPv6, nil); fmt.Sprint(err) != "the proxy does not serve IPv6" {
		t.Errorf("a family that is not served: got error %v", err)
	}
	s := p.Status().Families[0]
	if !s.Healthy || s.Services != 1 || s.ServicePorts != 1 || s.Rows["service-classes"] != 1 ||
		s.LastSync == nil || s.LastSync.Cause != "first sync" || !s.LastSync.Whole || s.Rewrites != 1 {
		t.Errorf("after the first sync: got %+v", s)
	}
}

// The status names the cause of the last sync, its error, and the repairs.
func TestStatusOfSyncs(t *testing.T) {
	tabletest.NewNamespace(t)
	fail := false
	config := sampleConfig()
	config.open = openWith(func(_ *nft.Batch, commit func() error) error {
		if fail {
			return tabletest.ErrCommit
		}
		return commit()
	})
	p := newTestProxier(t, config, nft.IPv4)
	tabletest.PassSample(p.sink)
	loop := &syncLoop{family: p.families[0]}
	p.tracker.servicesSynced, p.tracker.slicesSynced = true, true
	step := func(want string, whole bool) *FamilyStatus {
		t.Helper()
		s := &p.Status().Families[0]
		if s.LastSync == nil || s.LastSync.Cause != want || s.LastSync.Whole != whole {
			t.Errorf("got sync %+v, want one because of %s", s.LastSync, want)
		}
		return s
	}
	loop.attempt("Sync", loop.table.Sync)
	step("first sync", true)
	p.sink.SetService(tabletest.Service("new", "10.96.0.77", nil))
	loop.attempt("Sync", loop.table.Sync)
	step("changes", false)
	loop.attempt("Resync", loop.table.Resync)
	step("periodic", false)
	tabletest.NFT(t, "", "flush", "map", "ip", "kube-proxy", "service-classes")
	loop.check()
	publish(p)
	if s := step(p.families[0].lastSync.Load().Cause, true); s.Repairs["rows"] != 1 {
		t.Errorf("got repairs %v, want one of rows", s.Repairs)
	}
	fail = true
	p.sink.SetService(tabletest.Service("new", "10.96.0.78", nil))
	loop.attempt("Sync", loop.table.Sync)
	if s := step("changes", false); s.LastSync.Error == "" {
		t.Error("got no error of a sync that failed")
	}
}
