// Package release tests the files of a release, which `make release` builds,
// without a registry on another machine:
//
//	make release-dry-run
//
// Second builds, the tools of the users (Krew, Helm, go-containerregistry) and
// a registry in this process judge the files. The environment variables RELEASE
// and VERSION name the folder and the version.
package release
