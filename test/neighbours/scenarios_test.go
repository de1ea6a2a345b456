package neighbours

import (
	"context"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// scenarios returns all programs, in the order of the documentation.
func scenarios() []scenario {
	return []scenario{
		firewalld(), ufw(), iptables("nft"), iptables("legacy"), cni(), nftScripts(), conntrack(), conntrackd(),
	}
}

func firewalld() scenario {
	return scenario{
		name: "firewalld", packages: []string{"firewalld"},
		prepare: func(t *testing.T, n *node) {
			n.mustRun(t, "dbus-daemon --system --fork --nopidfile")
			n.daemon(t, "exec firewalld --nofork --nopid")
			n.mustRun(t,
				"for i in $(seq 100); do firewall-cmd --state && exit; sleep 0.2; done; cat /tmp/daemon.log; exit 1")
		},
		steps: []step{
			{does: "runs with the zone public"},
			{does: "`firewall-cmd --reload`", script: "firewall-cmd --reload"},
			{does: "zone drop for all interfaces", script: "firewall-cmd --set-default-zone=drop"},
			{does: "adds a port and a masquerade",
				script: "firewall-cmd --add-port=9999/tcp; firewall-cmd --add-masquerade"},
			{does: "`firewall-cmd --panic-on`", script: "firewall-cmd --panic-on", blockedBy: "table inet firewalld"},
			{does: "`firewall-cmd --panic-off`", script: "firewall-cmd --panic-off"},
		},
	}
}

func ufw() scenario {
	return scenario{
		name: "ufw", packages: []string{"ufw"},
		prepare: func(t *testing.T, n *node) { n.mustRun(t, "ufw --force enable") },
		steps: []step{
			{does: "routed traffic denied (default)", blockedBy: "table ip filter, chain FORWARD: policy drop"},
			{does: "`ufw route allow to` the range of the pods, for IPv4 only",
				script:    "ufw route allow to 10.244.0.0/16",
				blockedBy: "table ip6 filter, chain FORWARD: policy drop"},
			{does: "the same for IPv6", script: "ufw route allow to fd00:244::/32"},
			{does: "`ufw reload`", script: "ufw reload"},
			{does: "`ufw default allow routed`",
				script: "ufw route delete allow to 10.244.0.0/16; ufw default allow routed"},
			{does: "`ufw disable`", script: "ufw disable"},
		},
	}
}

func iptables(variant string) scenario {
	both := func(rule string) string {
		return "iptables-" + variant + " " + rule + "\nip6tables-" + variant + " " + rule + "\n"
	}
	table := "table ip filter"
	if variant == "legacy" {
		table = "legacy table ip filter"
	}
	return scenario{
		name: "iptables-" + variant, packages: []string{"iptables"},
		steps: []step{
			{does: "`-P FORWARD DROP`", script: both("-P FORWARD DROP"),
				blockedBy: table + ", chain FORWARD: policy drop"},
			{does: "accepts translated connections (`--ctstate DNAT,ESTABLISHED,RELATED`)",
				script: both("-A FORWARD -m conntrack --ctstate DNAT,ESTABLISHED,RELATED -j ACCEPT")},
			{does: "drops a port in a chain of its own",
				script: both("-N own") + both("-I FORWARD -p tcp -j own") +
					both("-A own -p tcp --dport 8000:9000 -j DROP"),
				blockedBy: table + ", chain own, rule 1"},
			{does: "its own DNAT and MASQUERADE in the table nat",
				script: both("-F own") + both("-t nat -A PREROUTING -p tcp --dport 8999 -j REDIRECT --to-ports 8998") +
					both("-t nat -A POSTROUTING -o lo -j MASQUERADE")},
			{does: "`iptables-restore` of its rules",
				script: "iptables-" + variant + "-save | iptables-" + variant + "-restore"},
		},
	}
}

func nftScripts() scenario {
	const own = `cat > /tmp/fw.nft <<'X'
table inet fw
flush table inet fw
table inet fw {
	chain forward {
		type filter hook forward priority 0; policy accept
		ct state established,related accept
		iifname "eth0" tcp dport 8080 VERDICT
	}
}
X
sed 's/VERDICT/accept/' /tmp/fw.nft | nft -f -
`
	return scenario{
		name: "nft", packages: []string{"nftables"},
		steps: []step{
			{does: "loads a script that flushes its own table", script: own},
			{does: "loads it again", script: "sed 's/VERDICT/accept/' /tmp/fw.nft | nft -f -"},
			{does: "loads it with a rule that drops", script: "sed 's/VERDICT/drop/' /tmp/fw.nft | nft -f -",
				blockedBy: "table inet fw, chain forward, rule 2"},
			{does: "`nft flush ruleset`, as Debian's /etc/nftables.conf does", script: "nft -f /etc/nftables.conf"},
			{does: "the same ten times", script: "for i in $(seq 10); do nft flush ruleset; sleep 0.1; done"},
		},
	}
}

func conntrack() scenario {
	return scenario{
		name: "conntrack", packages: []string{"conntrack"},
		steps: []step{
			{does: "`conntrack -F`: established connections to a Service with one endpoint continue",
				run: flushConntrack},
		},
	}
}

// flushConntrack deletes all entries of connection tracking while a connection
// to a Service is open. The next packet of the connection is translated again.
func flushConntrack(n *node) {
	p := n.probes[0]
	conn, r := lab.Open(n.t.Context(), p.from, p.network, p.to, lab.ProbeOptions{})
	if conn == nil {
		n.t.Fatalf("%s: %v", p.name, r)
	}
	defer conn.Close()
	n.mustRun(n.t, "conntrack -F")
	ctx, cancel := context.WithTimeout(n.t.Context(), 5*time.Second)
	defer cancel()
	if r := conn.Ask(ctx); r.Outcome != lab.Answered {
		n.t.Errorf("%s, after the deletion: %v", p.name, r)
	}
}

func conntrackd() scenario {
	return scenario{
		name: "conntrackd", packages: []string{"conntrackd"},
		prepare: func(t *testing.T, n *node) {
			n.mustRun(t, `cat > /tmp/conntrackd.conf <<'X'
General {
	HashSize 8192
	HashLimit 65535
	LockFile /run/conntrackd.lock
	UNIX { Path /run/conntrackd.ctl }
}
Stats { LogFile off }
X
conntrackd -C /tmp/conntrackd.conf -d`)
		},
		steps: []step{
			{does: "collects statistics", script: "conntrackd -C /tmp/conntrackd.conf -s"},
			{does: "`conntrackd -f`: flushes its cache", script: "conntrackd -C /tmp/conntrackd.conf -f"},
		},
	}
}
