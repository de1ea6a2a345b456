package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// node is the node that is checked. Settings are read below Root, everything
// else in the network namespace of the calling thread.
type node struct{ Config }

// withoutProxy is the finding of a check that needs a running proxy.
func (n *node) withoutProxy() Finding {
	if n.ProxyError != nil {
		return skipped("only a running proxy knows: " + n.ProxyError.Error())
	}
	return skipped("only a running proxy knows")
}

func families() []nft.Family { return []nft.Family{nft.IPv4, nft.IPv6} }

func (n *node) path(parts ...string) string {
	return filepath.Join(append([]string{n.Root}, parts...)...)
}

// sysctl returns the value of a sysctl, such as net/ipv4/ip_forward. ok is
// false if the kernel does not have it.
func (n *node) sysctl(name string) (value string, ok bool, err error) {
	data, err := os.ReadFile(n.path("proc/sys", name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	return strings.TrimSpace(string(data)), err == nil, err
}

// number returns the number in a sysctl.
func (n *node) number(name string) (value int, ok bool, err error) {
	text, ok, err := n.sysctl(name)
	if !ok || err != nil {
		return 0, false, err
	}
	value, err = strconv.Atoi(text)
	return value, err == nil, err
}

// interfacesWhere returns the interfaces, without lo, whose IPv4 setting meets
// a condition.
func (n *node) interfacesWhere(setting string, meets func(value int) bool) (names []string, err error) {
	entries, err := os.ReadDir(n.path("proc/sys/net/ipv4/conf"))
	for _, e := range entries {
		name := e.Name()
		if name == "lo" || name == "all" || name == "default" {
			continue
		}
		value, known, err := n.interfaceSetting(name, setting)
		if err != nil {
			return nil, err
		}
		if known && meets(value) {
			names = append(names, name)
		}
	}
	return names, err
}

// interfaceSetting returns an IPv4 setting of an interface, which can also be
// all.
func (n *node) interfaceSetting(iface, name string) (int, bool, error) {
	// The name of an interface can contain a dot, but no slash.
	return n.number("net/ipv4/conf/" + iface + "/" + name)
}

// list returns at most limit names, and the number of the others.
func list(names []string, limit int) string {
	if len(names) <= limit {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:limit], ", ") + " and " + strconv.Itoa(len(names)-limit) + " more"
}
