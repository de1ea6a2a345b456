# Serves the folder manifests, explains a connection and removes the rules.
ip link set lo up
ip addr add 192.0.2.1/32 dev lo
ip route add default dev lo
./kube-proxy --manifests manifests --cluster-cidr 10.244.0.0/16 --conntrack-max-per-core 0 >log 2>&1 &
for i in $(seq 300); do
  nft list map ip kube-proxy service-classes 2>/dev/null | grep -q default/web && break
  sleep 0.1
done
./nftproxy explain 10.96.0.10:80 --from node || cat log
kill $!
wait $!
./kube-proxy --cleanup
nft list tables
