// Package packages tests the packages for Debian and for RPM on a machine in
// namespaces, with its systemd.
package packages
