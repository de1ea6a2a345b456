// Command image packs static kube-proxy binaries into a container image,
// without Docker and without a registry.
//
//	cd deploy && go run ./image --name ghcr.io/nftproxy/nftproxy:v0.2.0 \
//	  --output image.tar amd64=../bin/linux-amd64
//
// A folder contains kube-proxy and THIRD-PARTY, the licence texts of command
// sbom.
//
// The output is a tar file that is an OCI image layout and a Docker archive:
// `ctr images import`, `docker load`, `kind load image-archive`, and `skopeo
// copy oci-archive:` accept it; `crane push` accepts the unpacked layout. The
// same binaries, name, version and time produce the same bytes and digests with
// the same Go release. The name refers to an index with one image for each
// architecture. Docker archives have no index, so Docker without the containerd
// image store loads the first image.
//
// The image has one layer: the binary at the path of kubeadm's DaemonSet, its
// second name nftproxy, licences, /etc/passwd, /etc/group and an empty /tmp. It
// has no shell and no libraries, and none of the programs nft, iptables and
// conntrack.
package main
