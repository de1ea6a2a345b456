// Package informer is a source of a proxier's state. It lists and watches
// Services, EndpointSlices, ServiceCIDRs and the Node that the proxier runs on.
//
// It has kube-proxy's selectors, so headless Services, their EndpointSlices and
// the Services of other proxies never reach memory. Services and EndpointSlices
// are translated one by one while the list arrives, and a [store] keeps only the
// translation. The store calls the handler of a change in the goroutine that
// receives it. Of a Node and of ServiceCIDRs it keeps the fields that a proxier
// reads.
//
// While the API server cannot be reached, the handler is not called. When the
// API server is back, the handler is called for each object that changed.
package informer
