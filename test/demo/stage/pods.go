package stage

import (
	"context"
	"fmt"

	"github.com/nftproxy/nftproxy/test/demo/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
)

// addPods makes the pods of all Services, and the toolbox.
func (s *Stage) addPods(ctx context.Context) error {
	for _, service := range s.Services {
		for _, e := range service.Endpoints {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := s.AddPod(e, service.Ports); err != nil {
				return err
			}
		}
	}
	return s.AddPod(Toolbox(), nil)
}

// AddPod makes a pod and starts its servers, one a port.
func (s *Stage) AddPod(e cluster.Endpoint, ports []cluster.Port) error {
	node, err := s.node(e.Node)
	if err != nil {
		return fmt.Errorf("pod %s: %w", e.Pod, err)
	}
	pod, err := node.AddPodWith(lab.PodConfig{Name: e.Pod, IPv4: e.IPv4, IPv6: e.IPv6})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.pods[e.Pod] = pod
	s.mu.Unlock()
	for _, port := range ports {
		if err := serve(pod, port); err != nil {
			return err
		}
	}
	return nil
}

func serve(pod *lab.Pod, port cluster.Port) (err error) {
	if port.Protocol == "udp" {
		_, err = pod.ServeUDP(port.TargetPort)
	} else {
		_, err = pod.ServeTCP(port.TargetPort)
	}
	return err
}

// RemovePod ends a pod.
func (s *Stage) RemovePod(name string) error {
	s.mu.Lock()
	pod, exists := s.pods[name]
	delete(s.pods, name)
	s.mu.Unlock()
	if !exists {
		return fmt.Errorf("there is no pod %s in the lab", name)
	}
	return pod.Remove()
}
