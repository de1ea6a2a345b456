package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// node is the node that is checked. Settings are read below Root, everything
// else in the network namespace of the calling thread.
type node struct {
	Config
	// failed is the first error of a method that reads settings. The check then
	// has no other finding.
	failed error
}

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

// sysctl returns the value of a sysctl, such as net/ipv4/ip_forward. known is
// false if the kernel does not have it.
func (n *node) sysctl(name string) (value string, known bool) {
	data, err := os.ReadFile(n.path("proc/sys", name))
	if !errors.Is(err, fs.ErrNotExist) {
		n.failed = cmp.Or(n.failed, err)
	}
	return strings.TrimSpace(string(data)), err == nil
}

// number returns the number in a sysctl.
func (n *node) number(name string) (value int, known bool) {
	text, known := n.sysctl(name)
	if !known {
		return 0, false
	}
	value, err := strconv.Atoi(text)
	n.failed = cmp.Or(n.failed, err)
	return value, err == nil
}

// ipv4Conf has the IPv4 settings of each interface, and of `all`.
const ipv4Conf = "net/ipv4/conf/"

// interfacesWhere returns the interfaces, without lo, whose IPv4 setting meets
// a condition.
func (n *node) interfacesWhere(setting string, meets func(value int) bool) (names []string) {
	entries, err := os.ReadDir(n.path("proc/sys", ipv4Conf))
	n.failed = cmp.Or(n.failed, err)
	for _, e := range entries {
		name := e.Name()
		if name == "lo" || name == "all" || name == "default" {
			continue
		}
		// The name of an interface can contain a dot, but no slash.
		if value, known := n.number(ipv4Conf + name + "/" + setting); known && meets(value) {
			names = append(names, name)
		}
	}
	return names
}

// list returns at most limit values, and the number of the others.
func list[T any](values []T, limit int) string {
	var texts []string
	for _, v := range values[:min(len(values), limit)] {
		texts = append(texts, fmt.Sprint(v))
	}
	text := strings.Join(texts, ", ")
	if more := len(values) - limit; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
