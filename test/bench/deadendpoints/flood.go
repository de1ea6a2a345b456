package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/random"
)

// The Service of a flood has ports with one dead endpoint, so that connection
// tracking remembers each attempt to connect for 120 s.
const (
	floodName     = "flood"
	floodPorts    = 8
	floodNodePort = nodePort + 100
	floodTarget   = 9000
)

// addFlood creates the Service of a flood, and its dead endpoint.
func (w *world) addFlood(ctx context.Context, s *stage.Stage) error {
	pod, err := s.Lab.Node2.AddPod(floodName)
	if err != nil {
		return err
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: floodName}}
	service.Spec.Type = corev1.ServiceTypeNodePort
	slice := random.NewSlice(floodName, floodName, 0)
	slice.Namespace = stage.NamespaceName
	random.AddEndpoint(slice, pod.Addrs()[0]).Conditions.Ready = ptr.To(true)
	slice.Ports = nil
	for i := range int32(floodPorts) {
		name := fmt.Sprint("p", i)
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: name, Port: 80 + i, NodePort: floodNodePort + i, TargetPort: intstr.FromInt32(floodTarget + i),
		})
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: ptr.To(name), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(floodTarget + i),
		})
	}
	_, errService := s.Services().Create(ctx, service, metav1.CreateOptions{})
	_, errSlice := s.Slices().Create(ctx, slice, metav1.CreateOptions{})
	return errors.Join(errService, errSlice, pod.Blackhole(s.Lab.Node1.PodRanges...))
}

// flood sends n SYNs from the client to the NodePorts of the flood, each from
// another source port.
func flood(client *lab.Namespace, node netip.Addr, n int) error {
	return client.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		to := &unix.SockaddrInet4{Addr: node.As4()}
		for i := range n {
			source, destination := uint16(1024+i/floodPorts), uint16(floodNodePort+i%floodPorts)
			if err := unix.Sendto(fd, syn(clientAddr, node, source, destination), 0, to); err != nil {
				return fmt.Errorf("SYN %d: %w", i, err)
			}
		}
		return nil
	})
}

// syn returns an IPv4 packet with a SYN. The kernel writes the checksum of the
// IPv4 header.
func syn(from, to netip.Addr, source, destination uint16) []byte {
	const ipv4, tcp = 20, 20
	packet := make([]byte, ipv4+tcp)
	packet[0], packet[8], packet[9] = 0x45, 64, unix.IPPROTO_TCP // version and length, TTL, protocol
	copy(packet[12:], from.AsSlice())
	copy(packet[16:], to.AsSlice())
	segment := packet[ipv4:]
	binary.BigEndian.PutUint16(segment[0:], source)
	binary.BigEndian.PutUint16(segment[2:], destination)
	segment[12], segment[13] = tcp/4<<4, 0x02 // SYN
	binary.BigEndian.PutUint16(segment[14:], 64240)
	sum := uint32(unix.IPPROTO_TCP + tcp) // of the pseudo-header, too
	for i := 12; i < len(packet); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(segment[16:], ^uint16(sum+sum>>16))
	return packet
}
