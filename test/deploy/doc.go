// Package deploy tests the directory deploy: the kustomizations and the
// chart, the image, the alerts and the dashboard. kustomize and Helm render
// the manifests; the decoders of the Kubernetes API, go-containerregistry and
// the parsers of Prometheus read the results. It tests no running cluster.
//
// It is a separate module, so that the product does not depend on these
// tools.
package deploy
