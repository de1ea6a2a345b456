// Package socket connects the command nftproxy with a running proxy: the
// answers as plain structs, a server that offers them on a unix socket, and a
// client.
//
// The socket is /run/nftproxy/INODE.sock, where INODE is the number of the
// proxy's network namespace. The server and the client accept only root and
// their own user on the other side. The protocol is HTTP with JSON.
//
// The package computes no answers. Package proxier does (see Proxy).
package socket
