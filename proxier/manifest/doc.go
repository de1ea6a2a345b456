// Package manifest is the source of cluster state for machines without a
// cluster. It reads Services, EndpointSlices, Nodes and ServiceCIDRs from the
// manifests in a directory. It delivers them, and later every change, to a
// Handler.
//
//	DIR ► list, read ► split ► decode ► admission ► merge ► diff ► Handler
//	 ▲                   one document (pure)        all files (pure)
//	 └─ fsnotify, and a poll once a second
//
// It owns the reading of the directory: which files are manifests, which
// definition of an object is active, and when a change is detected. It does
// not own the rules for single objects, which are in package admission, and
// not the meaning of the objects, which is up to the Handler. It imports
// neither the proxier nor anything about packets.
//
// # Manifests
//
// Manifests are the files *.yaml, *.yml and *.json in the directory. Hidden
// files and subdirectories are ignored; symbolic links are followed.
//
// A manifest holds YAML or JSON documents in the format of `kubectl apply
// -f`: v1 Service, v1 Node, discovery.k8s.io/v1 EndpointSlice,
// networking.k8s.io/v1 ServiceCIDR, and lists of these. Objects of other
// kinds are skipped and logged once, unless they are close to one of these:
// they are errors. Decoding is strict: unknown fields, duplicate keys and wrong
// types are errors.
//
// # Active objects
//
// A manifest is valid or invalid as a whole. If it cannot be read, cannot be
// parsed or has an invalid object, all objects of its last valid version stay
// active. If a file is removed, its objects are removed.
//
// If an object is defined more than once, the active definition stays active.
// At the start this is the definition in the first file by name. When the
// active definition is removed, the next one becomes active.
//
// A file that is larger than 16 MB, a document with more than a million values
// after its aliases are replaced, and files beyond 128 MB of the directory are
// problems like others: see maxFileSize.
//
// If the directory is removed, all objects stay active until it exists again.
//
// Source.Status has the problems of the last read, with their lines.
//
// # Writing manifests
//
// Replace a manifest atomically: write a new file and rename it to the old
// name. A partly written manifest is invalid, or valid with some objects
// missing.
package manifest
