// Package deploy checks what deploy/ offers to operators with the programs they use: kustomize and Helm render the manifests, and the
// API's own decoders, go-containerregistry and Prometheus's parsers read them, the image, the alerts and the dashboard. It has a
// module of its own, so that the product depends on none of these.
package deploy
