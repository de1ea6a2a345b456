// Package manifest is the source of cluster state for machines without a cluster: it reads Services,
// EndpointSlices, Nodes and ServiceCIDRs from the manifests in a directory and delivers them, and every
// later change, to a Handler.
//
//	DIR ─► list, read ─► split ─► decode ─► default, validate ─► merge ─► diff ─► Handler
//	 ▲                    one document at a time (pure)          all files (pure)
//	 └─ fsnotify, and a look once a second
//
// It owns the reading of the directory: which files count (*.yaml, *.yml and *.json, not recursive, no
// hidden files, symbolic links followed), what a valid object is, which definition of an object is in
// force, and when a change is seen. It does not own what becomes of the objects: it knows nothing of
// packets, and allocates nothing.
//
// # Objects
//
// A file holds YAML or JSON documents as `kubectl apply -f` takes them: v1 Service, v1 Node,
// discovery.k8s.io/v1 EndpointSlice, networking.k8s.io/v1 ServiceCIDR, and lists of these. Other kinds are
// skipped, and the log names them once. Reading is strict: unknown fields, duplicate keys and wrong types
// are errors. Then the defaults and the validation of the API server apply (Kubernetes 1.36). They differ
// where there is no server behind them:
//
//   - The status of Services and Nodes counts: status.loadBalancer.ingress gives a Service its load
//     balancer IPs. On Services of other types it is dropped, with a log line.
//   - What only a server can allocate stays unset: a Service without clusterIP has only its other
//     addresses, a NodePort Service without nodePort has none, health checks without healthCheckNodePort
//     are not served. The log says so once. A nodePort may be any port.
//   - clusterIP follows clusterIPs as well as the other way round, and ipFamilyPolicy follows the number
//     of clusterIPs and ipFamilies.
//   - EndpointSlice ports must be port numbers, and the IP addresses of a Node IP addresses: the API server
//     takes anything there, which nobody could use.
//
// # What is in force
//
// A file counts as a whole: if it cannot be read or parsed, or one of its objects is invalid, all objects of
// its last good version stay in force. A removed file takes its objects along. If an object is defined more
// than once, the definition that is in force stays so, at first the one in the first file by name; when it
// goes away, the next one comes in. If the directory vanishes, everything stays in force until it is back.
//
// Write files as one step, by renaming a complete one over the old one: a file seen half written is an
// error at best, and at worst valid with half of its objects.
package manifest
