// Command sbom lists the modules in a program of this repository. It writes a
// software bill of materials (CycloneDX 1.6, JSON) and the texts of their
// licences, which must be distributed with the program.
//
//	cd deploy && go run ./sbom --package ./cmd/kube-proxy --platform linux/arm64 \
//	  --version v0.2.0 --output nftproxy.cdx.json --licences THIRD-PARTY
//
// It fails if a module has no licence, or one that is not in allowedLicences.
// The modules contain the packages that the compiler links for the
// platform. The same source produces the same bytes.
package main
