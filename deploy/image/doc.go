// Command image packs static kube-proxy binaries into a container image,
// without Docker and without a registry.
//
//	go run ./deploy/image --name ghcr.io/nftproxy/nftproxy:v0.1.0 \
//	  --output image.tar amd64=bin/linux-amd64/kube-proxy
//
// The output is a tar file that is an OCI image layout and a Docker archive:
// `ctr images import`, `docker load`, `kind load image-archive`, `skopeo copy
// oci-archive:` and `crane push` accept it. The same binaries, name, version
// and time produce the same bytes and digests. With several architectures the
// image is an index with one image each. Docker archives have no index, so
// Docker loads the first image.
//
// The image has one layer: the binary at the path of kubeadm's DaemonSet, the
// licence, /etc/passwd, /etc/group and an empty /tmp. It has no shell and no
// libraries, and none of the programs nft, iptables and conntrack.
package main
