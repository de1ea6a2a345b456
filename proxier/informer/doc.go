// Package informer is the source of a proxier's state that watches a Kubernetes API server: Services, EndpointSlices, ServiceCIDRs and the Node
// that the proxier runs on.
//
// It asks for what a service proxy serves, and for nothing else: the selectors are kube-proxy's, so headless Services and those of other proxies never
// reach memory. Of Services and EndpointSlices, of which there are many, it keeps what a proxier makes of them: they are translated one by one while
// the list arrives, and a [store] tells the handler of each change in the goroutine that hears of it. Of other objects it keeps what a proxier reads.
//
// While the API server cannot be reached, nothing is told; when it can be again, what changed meanwhile is, and nothing else.
package informer
