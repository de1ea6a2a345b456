// Package stage is where benchmarks put service proxies side by side: an API server with many Services, and namespaces of a lab in which
// proxies run that all get the same configuration file, kubeconfig and objects.
//
//	Stage       the API server, the lab, Services loaded by the thousand
//	Node        a namespace with a proxy: started, programmed, stopped; its table stays until the namespace goes
//	NewService  objects as controllers make them; a Service is a number, all else follows from it
//
// The package measures nothing.
package stage
