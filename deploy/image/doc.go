// The image command packs static binaries of kube-proxy into a container image, without Docker and without a registry.
//
//	go run ./deploy/image --name ghcr.io/nftproxy/nftproxy:v0.1.0 --output image.tar amd64=bin/linux-amd64/kube-proxy
//
// What it writes is an OCI image layout in a tar file that is a Docker archive as well: `ctr images import`, `docker load`,
// `kind load image-archive`, `skopeo copy oci-archive:` and `crane push` read it. The same binaries, name, version and time give
// the same bytes, hence the same digests. With several architectures the image is an index of one image each; Docker, whose archive
// knows no indexes, loads the first one.
//
// The image has one layer: the binary where kubeadm's DaemonSet looks for it, the licence, an /etc/passwd and an empty /tmp. It has no
// shell, no libraries, and none of the programs nft, iptables and conntrack.
package main
