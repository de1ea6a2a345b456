package neighbours

import (
	"net/netip"
)

// containerAddr is the address of a container on a bridge of the CNI plugins.
const containerAddr = "10.88.0.2"

// hostPort is a port of the node that portmap leads to the container.
const hostPort = 8089

// cniScript defines shell functions for the CNI plugins. The container is a
// network namespace with servers that answer like the servers of package lab.
const cniScript = `
export CNI_CONTAINERID=c1 CNI_NETNS=/run/netns/c1 CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni
cat >/tmp/bridge.json <<'X'
{"cniVersion": "0.4.0", "name": "net", "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}
X
portmap() {
	cat >/tmp/portmap.json <<X
{"cniVersion": "0.4.0", "name": "net", "type": "portmap", "capabilities": {"portMappings": true},
 "runtimeConfig": {"portMappings": [{"hostPort": 8089, "containerPort": 8080, "protocol": "tcp"}]},
 "prevResult": $(cat /tmp/result.json)}
X
	CNI_COMMAND=$1 /usr/lib/cni/portmap </tmp/portmap.json
}
bridge() { CNI_COMMAND=$1 /usr/lib/cni/bridge </tmp/bridge.json; }
`

const cniAdd = cniScript + `
ip netns add c1
bridge ADD >/tmp/result.json
portmap ADD >/dev/null
cat >/tmp/server.py <<'X'
import socket, socketserver, threading
def answer(client): return b"c1 %s:%d\n" % (client[0].encode(), client[1])
class TCP(socketserver.BaseRequestHandler):
    def handle(self): self.request.sendall(answer(self.client_address))
class UDP(socketserver.BaseRequestHandler):
    def handle(self): self.request[1].sendto(answer(self.client_address), self.client_address)
socketserver.ThreadingTCPServer.allow_reuse_address = True
threading.Thread(target=socketserver.ThreadingUDPServer(("", 8080), UDP).serve_forever).start()
socketserver.ThreadingTCPServer(("", 8080), TCP).serve_forever()
X
ip netns exec c1 python3 /tmp/server.py >/tmp/server.log 2>&1 </dev/null &
for i in $(seq 100); do ip netns exec c1 ss -lnt | grep -q :8080 && exit; sleep 0.1; done
cat /tmp/server.log; exit 1
`

func cni() scenario {
	return scenario{
		name: "CNI plugins bridge and portmap", packages: []string{"containernetworking-plugins"},
		steps: []step{
			{does: "ADD of a container that is an endpoint, with a hostPort", script: cniAdd, run: func(n *node) {
				n.tables = ""
				n.serve(serviceAt{"container", 30, 30030, []netip.Addr{netip.MustParseAddr(containerAddr)}})
				n.probes = append(n.probes, probe{
					"client → hostPort", n.lab.Client, "tcp", netip.AddrPortFrom(n.at.IPv4, hostPort),
				})
			}},
			{does: "DEL", script: cniScript + "portmap DEL; bridge DEL", run: func(n *node) {
				n.probes = n.probes[:2*probesOfService] // the probes of the container are the last
			}},
		},
	}
}

// probesOfService is the number of probes of a dual-stack Service: from three
// clients to its ClusterIPs, and from one to its NodePort, by two protocols.
const probesOfService = 2 * 4 * 2
