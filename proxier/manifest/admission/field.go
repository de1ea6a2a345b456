package admission

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	metaapi "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checker collects the errors of an object. Its methods check fields.
type checker struct{ errs field.ErrorList }

func (c *checker) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

// invalid adds an error for each message about a value.
func (c *checker) invalid(path *field.Path, value any, messages ...string) {
	for _, message := range messages {
		c.add(field.Invalid(path, value, message))
	}
}

// enum checks that value is one of the supported values, or absent.
func enum[T ~string](c *checker, path *field.Path, value T, supported ...T) {
	if value != "" && !slices.Contains(supported, value) {
		c.add(field.NotSupported(path, value, supported))
	}
}

// port checks a port number.
func (c *checker) port(path *field.Path, port int32) {
	c.invalid(path, port, validation.IsValidPortNum(int(port))...)
}

// unique adds an error if seen has the value, and adds the value to seen.
func (c *checker) unique(seen sets.Set[string], path *field.Path, value string) {
	if seen.Has(value) {
		c.add(field.Duplicate(path, value))
	}
	seen.Insert(value)
}

// Scopes of kinds.
const clusterScope, namespaceScope = false, true

// meta sets the namespace of an object and checks its metadata. The API server
// ignores the namespace of cluster-scoped objects. validName checks the name.
func (c *checker) meta(meta *metav1.ObjectMeta, namespaced bool, validName metaapi.ValidateNameFunc) {
	if namespaced {
		meta.Namespace = cmp.Or(meta.Namespace, metav1.NamespaceDefault)
	} else {
		meta.Namespace = ""
	}
	path := field.NewPath("metadata")
	if meta.Name == "" {
		// Only an API server can turn a generateName into a name.
		c.add(field.Required(path.Child("name"), ""))
		return
	}
	errs := metaapi.ValidateObjectMeta(meta, namespaced, validName, path)
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return cmp.Compare(a.Error(), b.Error()) }) // of maps
	c.add(errs...)
}

// The API server requires the canonical form of addresses in newer fields. In
// older fields, called legacy fields, it accepts other spellings. Both refuse
// leading zeros and IPv4-mapped IPv6 addresses since Kubernetes 1.36
// (KEP-4858). This package accepts all spellings of legacy fields everywhere.

// ip checks an address, and reports whether it is valid.
func (c *checker) ip(path *field.Path, value string) bool {
	errs := validation.IsValidIPForLegacyField(path, value, true, nil)
	c.add(errs...)
	return len(errs) == 0
}

// cidrs checks CIDRs, which may have spaces around them.
func (c *checker) cidrs(path *field.Path, values []string) {
	for i, value := range values {
		c.add(validation.IsValidCIDRForLegacyField(path.Index(i), strings.TrimSpace(value), true, nil)...)
	}
}

// reachable refuses addresses that are invalid or that other machines cannot
// reach: rules for them would redirect traffic of the node itself. It reports
// whether the address is valid.
func (c *checker) reachable(path *field.Path, value string) bool {
	if !c.ip(path, value) {
		return false
	}
	addr := netip.MustParseAddr(value)
	var reason string
	switch {
	case addr.IsUnspecified():
		reason = "may not be unspecified (" + value + ")"
	case addr.IsLoopback():
		reason = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
	case addr.IsLinkLocalUnicast():
		reason = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
	case addr.IsLinkLocalMulticast():
		reason = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
	default:
		return true
	}
	c.invalid(path, value, reason)
	return false
}
