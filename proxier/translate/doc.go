// Package translate converts objects of the Kubernetes API to the structs of
// package cluster. It parses addresses and ports, applies the defaults of the
// API, and reports a problem for each field that is invalid.
//
// The package does not read the API (see packages informer and manifest), and
// the results share only strings with the API objects.
package translate
