// Package socket connects the command nftproxy with a running proxy: a server
// that answers questions over HTTP with JSON on a unix socket, and a client.
// Nothing listens on TCP. It does not know the questions: package answer
// defines them.
//
// # Path
//
// The socket is /run/nftproxy/INODE.sock, where INODE is the number of the
// proxy's network namespace, so proxies of several network namespaces do not
// conflict. The directory has mode 0700, the socket 0600.
//
// # Trust
//
// Server and client accept only root and their own user on the other side
// (SO_PEERCRED). The client refuses a directory that other users can write to,
// and symbolic links. A process with any network access could claim an abstract
// socket or a TCP port; a file in this directory needs root.
//
// # Containers
//
// A proxy in a container has the socket in the file system of the container. A
// command on the node finds it through /proc/PID/root of processes that are
// called kube-proxy, are in the same network namespace, and have CAP_NET_ADMIN
// in the user namespace that owns it, or in an ancestor: any program of a
// container can take the name, and has all capabilities in a user namespace
// that it creates. The listening process must be that process, and symbolic
// links of the container do not lead out of it.
//
// # Two proxies, or no socket
//
// A second proxy does not replace the socket of the first one. It logs a
// warning, serves without the socket and tries again every 10 s. So does a
// proxy that cannot create the socket, for example because /run is read-only. A
// proxy that starts removes the sockets on which no process listens. A proxy
// that ends removes its socket before it closes it.
package socket
