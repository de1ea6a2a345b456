// Package informer is the source of cluster state for the nodes of a cluster.
// It lists and watches Services, EndpointSlices, ServiceCIDRs and the Node
// that the proxier runs on.
//
// It owns the requests to the API server and the detection of changes. It
// does not own the meaning of the objects: a Service or an EndpointSlice is
// translated by package translate, and a Handler receives the translation.
//
// It has kube-proxy's selectors, so headless Services, their EndpointSlices
// and the Services of other proxies never reach memory. Objects are translated
// one by one while the list arrives, and a store keeps only the translation.
// The store calls the Handler in the goroutine that receives the change. Nodes
// and ServiceCIDRs are not translated, only copied.
//
// A watch starts after a list. If the API server cannot continue it, because
// the version is expired (410 Gone), a list follows after a backoff.
//
// While the API server is unreachable, the Handler is not called. When it is
// reachable again, the Handler is called for each object that changed.
package informer
