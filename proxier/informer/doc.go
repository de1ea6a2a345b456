// Package informer is the source of a proxier's state that watches a Kubernetes API server: Services, EndpointSlices, ServiceCIDRs and the Node
// that the proxier runs on.
//
// It asks for what a service proxy serves, and for nothing else: the selectors are kube-proxy's, so headless Services and those of other proxies never
// reach memory, and what is kept of an object is what a proxier makes of it ([trim]).
//
// While the API server cannot be reached, nothing is told; when it can be again, what changed meanwhile is, and nothing else.
package informer
