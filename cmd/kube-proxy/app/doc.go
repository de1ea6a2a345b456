// Package app is the kube-proxy command: it reads the flags and wires sources of state to a proxier. It has no logic of its own.
package app
