package proxier

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
	"github.com/nftproxy/nftproxy/test/script"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// apply passes the objects of a file to the Proxier.
func (s *story) apply(sc *script.Script, file string) error {
	objects, err := tabletest.Objects(sc.ReadFile(file))
	for _, object := range objects {
		switch object := object.(type) {
		case *corev1.Service:
			svc := translate.ParseService(object)
			s.given[svc] = func() any { return translate.ParseService(object) }
			s.p.SetService(svc)
		case *discoveryv1.EndpointSlice:
			slice := translate.ParseEndpointSlice(object)
			s.given[slice] = func() any { return translate.ParseEndpointSlice(object) }
			s.p.SetEndpointSlice(slice)
		case *corev1.Node:
			s.p.OnNodeAdd(object)
		}
	}
	return err
}

// delete passes the deletion of the objects of a file to the Proxier.
func (s *story) delete(sc *script.Script, file string) error {
	objects, err := tabletest.Objects(sc.ReadFile(file))
	for _, object := range objects {
		switch object := object.(type) {
		case *corev1.Service:
			s.p.OnServiceDelete(object)
		case *discoveryv1.EndpointSlice:
			s.p.OnEndpointSliceDelete(object)
		case *corev1.Node:
			s.p.OnNodeDelete(object)
		}
	}
	return err
}

// handover prints what the tracker hands over to a table. It checks that no
// object that the source holds was modified.
func (s *story) handover(family string) (string, error) {
	f := s.p.families.of(familyNamed(family))
	taken, _, _ := s.p.tracker.take(f.table.Family(), partCost, f.table)
	var calls recordingSink
	taken.passTo(&calls, s.p.node.current)
	for object, parse := range s.given {
		if want := parse(); !reflect.DeepEqual(object, want) {
			return "", fmt.Errorf("an object of the source was modified: got %+v, want %+v", object, want)
		}
	}
	slices.Sort(calls)
	if n := len(taken.triggers); n > 0 {
		calls = append(calls, fmt.Sprintf("%d triggers", n))
	}
	return lines(calls), nil
}

// recordingSink records the calls of a Sink.
type recordingSink []string

func (s *recordingSink) add(format string, args ...any) {
	*s = append(*s, fmt.Sprintf(format, args...))
}

func (s *recordingSink) Setup() error                        { return nil }
func (s *recordingSink) Sync() error                         { return nil }
func (s *recordingSink) SetNode(n *cluster.Node)             { s.add("node %s zone %q", n.Name, n.Zone) }
func (s *recordingSink) DeleteService(n cluster.ServiceName) { s.add("delete %s", n) }
func (s *recordingSink) SetService(svc *cluster.Service) {
	check := ""
	if svc.HealthCheck != nil {
		check = fmt.Sprintf(", check %s", svc.HealthCheck)
	}
	s.add("set %s %v %v balance %v%s", svc.Name, svc.ClusterIPs, svc.ExternalIPs, svc.Balance, check)
}

func (s *recordingSink) SetEndpoints(n cluster.ServiceName, source string, endpoints []*cluster.Endpoint) {
	text := fmt.Sprintf("set %s %s", n, source)
	for _, e := range endpoints {
		text += " " + e.Addr.String()
	}
	*s = append(*s, text)
}

// node prints what is known about the node.
func (s *story) node() string {
	n := s.p.node.current()
	return fmt.Sprintf("%v %v zone %q eligible %v", n.IPs, n.PodCIDRs, n.Zone, s.p.NodeEligible())
}

func lines(all []string) (text string) {
	for _, line := range all {
		text += line + "\n"
	}
	return text
}
