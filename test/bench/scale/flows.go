package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/lab"
)

// staleFlows is the number of flows of the endpoint that is removed.
const staleFlows = 1000

// removal removes one of the endpoints of a UDP Service, while the node tracks
// many flows of this Service. It measures until the flows of the endpoint are
// deleted.
func (r *run) removal(ctx context.Context) (err error) {
	if r.size.flows == 0 {
		return nil
	}
	number := stage.MaxServices + r.extra
	r.extra++
	addrs := stage.Endpoints(number, r.endpoints)
	service, slice := stage.NewService(number), newUDPSlice(number, addrs)
	service.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	restore, err := raiseFlowLimit(2 * r.size.flows)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	all := func() error { return fill(ctx, r.size.flows, stage.Frontend(number), addrs) }
	err = errors.Join(r.Create(ctx, service, slice), r.subject.settle(), r.subject.Pod.Do(all), r.subject.settle())
	if err != nil {
		return err
	}
	tracked, err := r.tracked()
	if err != nil {
		return err
	}
	r.subject.account.takePeak() // begins a new peak
	var s series
	err = r.subject.measure(&s, func() error {
		began := time.Now()
		_, err := r.Slices().Update(ctx, newUDPSlice(number, addrs[1:]), metav1.UpdateOptions{})
		for now := tracked; err == nil && now > tracked-staleFlows; {
			if err = r.subject.Process.Pause(5 * time.Millisecond); err == nil {
				now, err = r.tracked()
			}
		}
		s.latency.Add(time.Since(began))
		return errors.Join(err, r.subject.settle())
	})
	if err != nil {
		return err
	}
	r.add("UDP endpoint removed", &s, report.Number("flows", tracked))
	return errors.Join(r.addMemory("after the removal"),
		r.Services().Delete(ctx, service.Name, metav1.DeleteOptions{}), r.deleteSlice(ctx, number))
}

func newUDPSlice(service int, addrs []netip.Addr) *discoveryv1.EndpointSlice {
	slice := stage.NewSlice(service, addrs)
	slice.Ports[0].Protocol = ptr.To(corev1.ProtocolUDP)
	return slice
}

// fill adds UDP flows to connection tracking, as clients cause them, of the
// frontend. The first endpoint has staleFlows of them.
func fill(ctx context.Context, flows int, frontend netip.AddrPort, endpoints []netip.Addr) error {
	handle, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer handle.Close()
	flow := netlink.ConntrackFlow{FamilyType: unix.AF_INET, TimeOut: 3600}
	flow.Forward.Protocol, flow.Reverse.Protocol = unix.IPPROTO_UDP, unix.IPPROTO_UDP
	flow.Forward.DstIP, flow.Forward.DstPort = frontend.Addr().AsSlice(), frontend.Port()
	flow.Forward.SrcPort, flow.Reverse.SrcPort, flow.Reverse.DstPort = 4000, stage.TargetPort, 4000
	for i := 0; i < flows && ctx.Err() == nil; i++ {
		client, endpoint := lab.AddrIn(netip.MustParsePrefix("11.0.0.0/8"), i), endpoints[0]
		if i >= staleFlows {
			endpoint = endpoints[1+i%(len(endpoints)-1)]
		}
		flow.Forward.SrcIP, flow.Reverse.DstIP = client.AsSlice(), client.AsSlice()
		flow.Reverse.SrcIP = endpoint.AsSlice()
		if err := handle.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, &flow); err != nil {
			return fmt.Errorf("add flow %d to connection tracking: %w", i, err)
		}
	}
	return context.Cause(ctx)
}

// tracked returns the number of flows that the node tracks.
func (r *run) tracked() (int, error) {
	var usage conntrack.Usage
	err := r.subject.Pod.Do(func() (err error) { usage, err = conntrack.ReadUsage("/"); return err })
	return usage.Entries, err
}

// raiseFlowLimit raises the limit of flows of each network namespace, which
// only the initial namespace can do. The caller must call restore.
func raiseFlowLimit(flows int) (restore func() error, err error) {
	before, err := conntrack.ReadUsage("/")
	if err != nil {
		return nil, err
	}
	set := func(n int) error {
		return os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_max", []byte(strconv.Itoa(n)), 0)
	}
	return func() error { return set(before.Max) }, set(max(before.Max, flows))
}
