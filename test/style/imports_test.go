package style

import (
	"go/build"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/nftproxy/nftproxy/"
	// operator is the command nftproxy. Packages below it are its parts.
	operator = "cmd/kube-proxy/operator"
)

// ownImports are the packages of this module that a package may import. A
// package that is not listed may import all.
var ownImports = map[string][]string{
	"nft/nfnetlink":         {},
	"nft/notation":          {"nft/nfnetlink"},
	"nft":                   {"nft/nfnetlink", "nft/notation"},
	"nft/notify":            {"nft", "nft/nfnetlink"},
	"nft/walk":              {"nft", "nft/notation"},
	"nft/xtables":           {"nft", "nft/nfnetlink"},
	"conntrack":             {"nft/nfnetlink"},
	"healthcheck/connlimit": {},
	"healthcheck":           {"healthcheck/connlimit"},
	"proxier/cluster":       {"nft", "nft/nfnetlink"},
	"proxier/translate":     {"nft", "proxier/cluster"},
	"proxier/rendezvous":    {},
	"proxier/share":         {},
	"proxier/ruleset":       {"nft", "proxier/cluster", "proxier/rendezvous"},
	"proxier/table/keep":    {"nft", "nft/notify"},
	"proxier/table":         {"nft", "proxier/cluster", "proxier/ruleset", "proxier/share", "proxier/table/keep"},
	"proxier/localhost":     {"healthcheck/connlimit"},
	operator + "/answer": {
		"nft", "proxier", "proxier/cluster", "proxier/ruleset", "proxier/table", "proxier/table/keep",
		"proxier/localhost",
		"proxier/informer/apiclient", operator + "/explain", operator + "/socket",
	},
	operator + "/socket":         {},
	"cmd/kube-proxy/kernel":      {"nft"},
	"proxier/informer":           {"proxier/cluster", "proxier/translate", "proxier/informer/apiclient"},
	"proxier/informer/apiclient": {},
	"proxier/manifest":           {"proxier/cluster", "proxier/translate", "proxier/manifest/admission"},
	"proxier/manifest/admission": {},
	"proxier/leftovers":          {"nft", "nft/nfnetlink", "nft/xtables"},
	operator + "/explain":        {"nft", "nft/walk", "proxier/cluster", "proxier/ruleset"},
	operator + "/doctor": {
		"nft", "nft/walk", "nft/xtables", "conntrack", "proxier/cluster", "proxier/ruleset",
		"proxier/table", "proxier/translate", "proxier/leftovers", "proxier/informer/apiclient",
		"cmd/kube-proxy/kernel", operator + "/answer", operator + "/explain", operator + "/socket",
	},
	operator + "/flows": {"nft", "conntrack", "proxier/cluster", operator + "/explain"},
	operator + "/trace": {"nft", "nft/notify", "proxier/cluster", "proxier/ruleset", operator + "/explain"},
	"cmd/kube-proxy":    {"cmd/kube-proxy/app", operator},
	"cmd/printable":     {},
	operator: {
		"cmd/printable", "nft", "conntrack", "proxier", "proxier/cluster", "proxier/ruleset", "proxier/table",
		"proxier/table/keep",
		operator + "/answer", operator + "/doctor", operator + "/explain", operator + "/flows", operator + "/socket",
		operator + "/trace",
	},
	"cmd/kube-proxy/config": {"proxier", "proxier/cluster", "proxier/ruleset", "proxier/translate"},
	"cmd/kubectl-nftproxy":  {"cmd/printable"},
	"cmd/kube-proxy/app": {
		"cmd/kube-proxy/config", "nft", "conntrack", "healthcheck", "healthcheck/connlimit", "proxier",
		"proxier/cluster", "proxier/ruleset", "proxier/informer", "proxier/informer/apiclient", "proxier/manifest",
		"proxier/share", "cmd/kube-proxy/kernel", operator + "/answer", operator + "/socket", "proxier/leftovers",
	},
	"proxier/metric": {"nft"},
	"proxier/follow": {
		"nft", "conntrack", "healthcheck", "healthcheck/connlimit", "proxier/cluster", "proxier/translate",
		"proxier/ruleset", "proxier/share", "proxier/table", "proxier/localhost", "proxier/metric",
	},
	"proxier": {
		"nft", "healthcheck", "proxier/cluster", "proxier/translate", "proxier/ruleset", "proxier/table",
		"proxier/share", "proxier/table/keep", "proxier/localhost", "proxier/metric", "proxier/follow",
	},
}

// foreignImports are prefixes of the packages outside of the module and the
// standard library that a package may import. A package that is not listed may
// import all.
var foreignImports = map[string][]string{
	"nft":                   {"golang.org/x/sys", "github.com/google/nftables"},
	"nft/notation":          {"golang.org/x/sys", "github.com/google/nftables"},
	"nft/notify":            {"golang.org/x/sys", "github.com/google/nftables"},
	"nft/nfnetlink":         {"golang.org/x/sys"},
	"nft/walk":              {"golang.org/x/sys", "github.com/google/nftables"},
	"nft/xtables":           {"golang.org/x/sys", "github.com/google/nftables", "k8s.io/klog"},
	"conntrack":             {"golang.org/x/sys"},
	"healthcheck/connlimit": {"k8s.io/klog"},
	"healthcheck":           {"k8s.io/klog"},
	"proxier/cluster":       {"golang.org/x/sys"},
	"proxier/rendezvous":    {},
	"proxier/share":         {},
	"proxier/ruleset":       {},
	"proxier/table/keep":    {"golang.org/x/sys", "k8s.io/klog"},
	"proxier/table":         {"k8s.io/klog"},
	"proxier/localhost":     {"golang.org/x/sys", "k8s.io/klog"},
	"proxier/metric":        {"github.com/prometheus/client_golang"},
	"proxier/follow":        {"github.com/prometheus/client_golang", "k8s.io/klog"},
	operator + "/answer":    {"golang.org/x/sys"},
	"cmd/kube-proxy/kernel": {"golang.org/x/sys"},
	operator + "/socket":    {"golang.org/x/sys", "k8s.io/apimachinery/pkg/util/wait", "k8s.io/klog"},
	"proxier/translate":     {"k8s.io/api/", "k8s.io/utils/"},
	operator + "/explain":   {"golang.org/x/sys", "github.com/google/nftables", "github.com/vishvananda/netlink"},
	operator + "/doctor": {
		"golang.org/x/sys", "github.com/vishvananda/netlink", "k8s.io/apimachinery/pkg/util/",
	},
	operator + "/flows":    {"golang.org/x/sys"},
	operator + "/trace":    {"golang.org/x/sys"},
	operator:               {"github.com/spf13/cobra", "golang.org/x/sys", "sigs.k8s.io/yaml"},
	"cmd/printable":        {},
	"cmd/kubectl-nftproxy": {"golang.org/x/term", "github.com/spf13/pflag", "k8s.io/apimachinery/pkg/util/duration"},
	"proxier/leftovers": {
		"github.com/google/nftables", "github.com/vishvananda/netlink", "golang.org/x/sys", "k8s.io/klog",
	},
	"proxier/manifest/admission": {"k8s.io/api/", "k8s.io/apimachinery/", "k8s.io/utils/"},
}

// inputOutput are packages of the standard library that perform I/O.
var inputOutput = []string{"os", "net", "net/http", "syscall", "io/ioutil", "os/exec"}

// Imports run in one direction, and proxier/ruleset performs no I/O.
func TestImports(t *testing.T) {
	seen := 0
	walk(t, func(path string, d fs.DirEntry) {
		if !d.IsDir() {
			return
		}
		pkg, err := build.ImportDir(path, 0)
		if err != nil {
			return // no Go files for this system
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		name = filepath.ToSlash(name)
		if _, listed := ownImports[name]; listed {
			seen++
		}
		for _, imported := range pkg.Imports {
			if why := forbidden(name, imported); why != "" {
				t.Errorf("package %s imports %s: %s", name, imported, why)
			}
		}
		for _, imported := range append(pkg.TestImports, pkg.XTestImports...) {
			if importsCommand(name, imported) {
				t.Errorf("tests of package %s import %s: %s", name, imported, onlyCommand)
			}
		}
	})
	if seen != len(ownImports) {
		t.Errorf("got %d of the %d packages with a rule; was one renamed?", seen, len(ownImports))
	}
}

const onlyCommand = "only cmd and test import cmd"

// importsCommand reports whether a package outside of cmd and test imports a
// part of a command.
func importsCommand(name, imported string) bool {
	return strings.HasPrefix(imported, module+"cmd/") && !strings.HasPrefix(name, "cmd/") &&
		!strings.HasPrefix(name, "test/")
}

// forbidden returns the reason why a package must not import another one, "" if
// it may.
func forbidden(name, imported string) string {
	if own, ok := strings.CutPrefix(imported, module); ok {
		if importsCommand(name, imported) {
			return onlyCommand
		}
		if allowed, rule := ownImports[name]; rule && !slices.Contains(allowed, own) {
			return "see ownImports"
		}
		return ""
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") { // the standard library
		if name == "proxier/ruleset" && slices.Contains(inputOutput, imported) {
			return "the package must not perform I/O"
		}
		return ""
	}
	allowed, rule := foreignImports[name]
	isAllowed := func(prefix string) bool { return strings.HasPrefix(imported, prefix) }
	if rule && !slices.ContainsFunc(allowed, isAllowed) {
		return "see foreignImports"
	}
	return ""
}

// The command does not link the clientset of client-go, and with it the types
// of all API groups: 11 MB of the program and 8 MB of its resident memory.
func TestNoClientset(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../../cmd/kube-proxy").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(out)) {
		if strings.HasPrefix(path, "k8s.io/client-go/kubernetes") {
			t.Errorf("cmd/kube-proxy depends on %s", path)
		}
	}
}
