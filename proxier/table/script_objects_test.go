package table_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/template"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
	"github.com/nftproxy/nftproxy/test/script"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// objects are the objects of the cluster. They are passed to the present
// process, and to later ones.
type objects struct {
	sinks     cluster.Sinks // of the present process
	node      *cluster.Node
	services  map[string]*corev1.Service
	endpoints map[string]map[string]map[netip.Addr]*cluster.Endpoint // by Service, source and address
}

func newObjects() objects {
	return objects{
		node:      tabletest.Node(),
		services:  make(map[string]*corev1.Service),
		endpoints: make(map[string]map[string]map[netip.Addr]*cluster.Endpoint),
	}
}

// passTo passes all objects to another process, Services in order of names, as
// a source does.
func (o *objects) passTo(sinks cluster.Sinks) {
	o.sinks = sinks
	sinks.SetNode(o.node)
	for _, name := range slices.Sorted(maps.Keys(o.services)) {
		sinks.SetService(translate.ParseService(o.services[name]).Service)
	}
	for name, sources := range o.endpoints {
		for source, all := range sources {
			o.pass(parseName(name), source, slices.Collect(maps.Values(all)))
		}
	}
}

func (o *objects) objectSteps() map[string]any {
	return map[string]any{
		"apply": o.apply, "repeat": o.repeat, "patch": o.patch, "delete": o.delete, "endpoints": o.setEndpoints,
		"node": o.setNode,
	}
}

// apply passes the objects of files to the process. The files are templates:
// {{.}} is 0, or a number of repeat.
func (o *objects) apply(s *script.Script, files ...string) error {
	return o.applyAs(s, files, 0)
}

// repeat applies files for each number: repeat 1..100 web.yaml.
func (o *objects) repeat(s *script.Script, numbers string, files ...string) error {
	var first, last int
	_, err := fmt.Sscanf(numbers, "%d..%d", &first, &last)
	for n := first; n <= last && err == nil; n++ {
		err = o.applyAs(s, files, n)
	}
	return err
}

func (o *objects) applyAs(s *script.Script, files []string, n int) error {
	for _, file := range files {
		text, err := template.New(file).Funcs(template.FuncMap{
			"addr":  func(first string, n int) string { return addrAfter(first, n).String() },
			"addrs": func(first string, n int) string { return strings.Join(addrsFrom(first, n), ", ") },
			"text":  strings.Repeat,
			"add":   func(a, b int) int { return a + b },
		}).Parse(s.ReadFile(file))
		if err != nil {
			return err
		}
		var all bytes.Buffer
		if err := text.Execute(&all, n); err != nil {
			return err
		}
		if err := o.applyText(all.String()); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func (o *objects) applyText(text string) error {
	all, err := tabletest.Objects(text)
	for _, object := range all {
		switch object := object.(type) {
		case *corev1.Service:
			parsed := translate.ParseService(object)
			o.services[parsed.Name.String()] = object
			o.sinks.SetService(parsed.Service)
		case *discoveryv1.EndpointSlice:
			parsed := translate.ParseEndpointSlice(object)
			o.pass(parsed.Service, object.Name, parsed.Endpoints)
		}
	}
	return err
}

// pass passes the endpoints of a source.
func (o *objects) pass(svc cluster.ServiceName, source string, all []*cluster.Endpoint) {
	name := svc.String()
	if o.endpoints[name] == nil {
		o.endpoints[name] = make(map[string]map[netip.Addr]*cluster.Endpoint)
	}
	o.endpoints[name][source] = make(map[netip.Addr]*cluster.Endpoint)
	for _, e := range all {
		e.Source = source
		o.endpoints[name][source][e.Addr] = e
	}
	slices.SortFunc(all, func(a, b *cluster.Endpoint) int { return a.Addr.Compare(b.Addr) })
	o.sinks.SetEndpoints(svc, source, all)
}

// patch merges a Service with a part of it in YAML (RFC 7396):
//
//	patch default/web spec: {externalIPs: [192.0.2.1]}
func (o *objects) patch(name string, part ...string) error {
	svc, ok := o.services[name]
	if !ok {
		return fmt.Errorf("no Service %s", name)
	}
	before, err := json.Marshal(svc)
	change, errYAML := yaml.YAMLToJSON([]byte(strings.Join(part, " ")))
	after, errPatch := jsonpatch.MergePatch(before, change)
	if err = errors.Join(err, errYAML, errPatch); err != nil {
		return err
	}
	return o.applyText(string(after))
}

// delete deletes Services and their endpoints, or all of them. With only, the
// endpoints stay.
func (o *objects) delete(names ...string) error {
	only := names[0] == "only"
	if names[0] == "all" {
		names = slices.Collect(maps.Keys(o.services))
	}
	for _, name := range names {
		if name == "only" {
			continue
		}
		if _, ok := o.services[name]; !ok {
			return fmt.Errorf("no Service %s", name)
		}
		delete(o.services, name)
		o.sinks.DeleteService(parseName(name))
		if !only {
			o.clear(name)
		}
	}
	return nil
}

// clear deletes the endpoints of a Service.
func (o *objects) clear(name string) {
	for source := range o.endpoints[name] {
		o.sinks.SetEndpoints(parseName(name), source, nil)
	}
	delete(o.endpoints, name)
}

func parseName(text string) cluster.ServiceName {
	namespace, name, _ := strings.Cut(text, "/")
	return cluster.ServiceName{Namespace: namespace, Name: name}
}

// setEndpoints sets the endpoints of a Service, or adds and removes some:
// endpoints default/web 10.244.1.5 10.244.2.5@node2*3, endpoints default/web
// +10.244.1.6 -10.244.1.5. 10.244.1.1x50 are 50 addresses. *3 is the weight.
func (o *objects) setEndpoints(name string, args ...string) error {
	if len(args) == 0 || !strings.ContainsAny(args[0][:1], "+-") {
		o.clear(name)
	}
	const source = "endpoints"
	all := o.endpoints[name]
	if all[source] == nil {
		o.pass(parseName(name), source, nil)
		all = o.endpoints[name]
	}
	changed := map[string]bool{source: true}
	for _, arg := range args {
		text, removes := strings.CutPrefix(arg, "-")
		endpoints, err := o.parseEndpoints(name, strings.TrimPrefix(text, "+"))
		if err != nil {
			return err
		}
		for _, e := range endpoints {
			if !removes {
				all[source][e.Addr] = e
				continue
			}
			for in, had := range all {
				changed[in] = changed[in] || had[e.Addr] != nil
				delete(had, e.Addr)
			}
		}
	}
	for in := range changed {
		o.pass(parseName(name), in, slices.Collect(maps.Values(all[in])))
	}
	return nil
}

func (o *objects) parseEndpoints(service, text string) (all []*cluster.Endpoint, err error) {
	text, weight, _ := strings.Cut(text, "*")
	text, node, _ := strings.Cut(text, "@")
	first, number, _ := strings.Cut(text, "x")
	w, _ := strconv.Atoi(cmp.Or(weight, "1"))
	n, err := strconv.Atoi(cmp.Or(number, "1"))
	if err != nil {
		return nil, err
	}
	var ports []cluster.EndpointPort
	if svc := o.services[service]; svc != nil {
		for _, p := range translate.ParseService(svc).Service.Ports {
			ports = append(ports, cluster.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: 8080})
		}
	}
	slices.SortFunc(ports, cluster.EndpointPort.Compare)
	for _, addr := range addrsFrom(first, n) {
		e := tabletest.Endpoint(addr)
		e.Node, e.Weight, e.Ports = cmp.Or(node, "node1"), cluster.WeightOf(w), ports
		all = append(all, e)
	}
	return all, nil
}

func addrsFrom(first string, n int) (all []string) {
	for i := range n {
		all = append(all, addrAfter(first, i).String())
	}
	return all
}

// addrAfter returns the address n after another one.
func addrAfter(first string, n int) netip.Addr {
	bytes := netip.MustParseAddr(first).AsSlice()
	for i := len(bytes) - 1; n > 0; i-- {
		n += int(bytes[i])
		bytes[i], n = byte(n), n>>8
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}

// setNode changes fields of the node: name=value,value.
func (o *objects) setNode(args ...string) error {
	n := *o.node
	err := onlyFields(&n, args)
	o.node = &n
	o.sinks.SetNode(&n)
	return err
}
