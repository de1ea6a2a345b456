package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nftproxy/nftproxy/proxier/manifest/admission"
	"github.com/nftproxy/nftproxy/proxier/suggest"
)

// Warnings of this package. Package admission has the warnings about Services.
const (
	warnSkippedKind = "Skipped an object of an unsupported kind"
	warnEndpoints   = "Skipped an Endpoints object, which is not served: define an EndpointSlice"
	warnNoService   = "Skipped an EndpointSlice without the label " + discoveryv1.LabelServiceName
)

// parsed is the result of parsing a document or a file. The places of a
// document's results have the item only, and those of problems the line: the
// other results are kept between reads, and the document can move.
type parsed struct {
	objects  []object
	problems []problem
	warnings []warning
}

// append adds the results of a document of a file.
func (p *parsed) append(results parsed, file string, doc document) {
	document, line := doc.number, doc.firstLine()
	for _, o := range results.objects {
		o.file, o.document, o.line = file, document, line
		p.objects = append(p.objects, o)
	}
	for _, problem := range results.problems {
		problem.place.file, problem.place.document = file, document
		p.problems = append(p.problems, problem)
	}
	for _, w := range results.warnings {
		w.file, w.document, w.line = file, document, line
		p.warnings = append(p.warnings, w)
	}
}

func (p *parsed) addProblem(item int, subject string, err error) {
	if len(p.problems) < maxProblems {
		p.problems = append(p.problems, problem{place: place{item: item}, subject: subject, err: err})
	}
}

func (p *parsed) addWarning(item int, subject, text string) {
	p.warnings = append(p.warnings, warning{place: place{item: item}, subject: subject, text: text})
}

// parseDocument returns the objects, problems and warnings of a document.
func parseDocument(decoder runtime.Decoder, doc document) parsed {
	var result parsed
	value, err := doc.toJSON()
	switch {
	case err != nil:
		result.addProblem(noItem, "", err)
	case !bytes.Equal(bytes.TrimSpace(value), []byte("null")):
		result.parseValue(decoder, value, nil, noItem)
	}
	doc.setLines(result.problems)
	return result
}

// parseValue parses a JSON object. If the object is an item of a typed list,
// implied is the type of the items.
func (p *parsed) parseValue(decoder runtime.Decoder, value []byte, implied *schema.GroupVersionKind, item int) {
	if !bytes.HasPrefix(bytes.TrimSpace(value), []byte("{")) {
		p.addProblem(item, "", errors.New("not an object"))
		return
	}
	decoded, gvk, err := decoder.Decode(value, implied, nil)
	switch {
	case runtime.IsNotRegisteredError(err):
		id := identify(value, implied)
		if err := misspelled(*gvk); err != nil {
			p.addProblem(item, id.String(), err)
			return
		}
		text := warnSkippedKind
		if *gvk == corev1.SchemeGroupVersion.WithKind("Endpoints") {
			text = warnEndpoints
		}
		p.addWarning(item, oneLine(id.APIVersion)+" "+id.String(), text)
		return
	case err != nil:
		for _, err := range decodeErrors(err) {
			p.addProblem(item, identify(value, implied).String(), err)
		}
		return
	}
	if list, ok := decoded.(*metav1.List); ok {
		p.parseList(decoder, list, *gvk, item)
		return
	}
	decoded.GetObjectKind().SetGroupVersionKind(*gvk)
	p.admit(decoded, item)
}

// parseList parses the items of a list. The kind of an item is optional in a
// typed list, such as a ServiceList. As in kubectl, lists cannot be nested.
func (p *parsed) parseList(decoder runtime.Decoder, list *metav1.List, gvk schema.GroupVersionKind, item int) {
	if item != noItem {
		p.addProblem(item, "", errors.New("a list in a list is not supported"))
		return
	}
	var implied *schema.GroupVersionKind
	if kind := strings.TrimSuffix(gvk.Kind, "List"); kind != "" {
		itemKind := gvk.GroupVersion().WithKind(kind)
		implied = &itemKind
	}
	for i, raw := range list.Items {
		if len(p.problems) >= maxProblems {
			return
		}
		p.parseValue(decoder, raw.Raw, implied, i)
	}
}

// admit validates a decoded object and adds it or its problems.
func (p *parsed) admit(value runtime.Object, item int) {
	var (
		warnings []string
		errs     field.ErrorList
	)
	switch value := value.(type) {
	case *corev1.Service:
		warnings, errs = admission.Service(value)
	case *discoveryv1.EndpointSlice:
		errs = admission.EndpointSlice(value)
	case *corev1.Node:
		errs = admission.Node(value)
	case *networkingv1.ServiceCIDR:
		errs = admission.ServiceCIDR(value)
	}
	key := keyOf(value)
	for _, err := range errs {
		p.addProblem(item, key.String(), err)
	}
	if len(errs) > 0 {
		return
	}
	if slice, ok := value.(*discoveryv1.EndpointSlice); ok && slice.Labels[discoveryv1.LabelServiceName] == "" {
		p.addWarning(item, key.String(), warnNoService)
		return
	}
	p.objects = append(p.objects, object{place: place{item: item}, key: key, value: value})
	for _, text := range warnings {
		p.addWarning(item, key.String(), text)
	}
}

// decodeErrors returns the errors that a strict decoding error combines. It
// replaces errors that quote the whole object.
func decodeErrors(err error) []error {
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		return strict.Errors()
	}
	switch {
	case runtime.IsMissingKind(err):
		return []error{errors.New("kind is missing")}
	case runtime.IsMissingVersion(err):
		return []error{errors.New("apiVersion is missing")}
	}
	return []error{err}
}

// objectKind is a supported kind.
type objectKind string

const (
	kindNode          objectKind = "Node"
	kindServiceCIDR   objectKind = "ServiceCIDR"
	kindService       objectKind = "Service"
	kindEndpointSlice objectKind = "EndpointSlice"
)

// namespaced reports whether objects of the kind have a namespace.
func (k objectKind) namespaced() bool {
	return k == kindService || k == kindEndpointSlice
}

// objectKey identifies an object. Namespace is empty for cluster-scoped
// kinds.
type objectKey struct {
	Kind      objectKind
	Namespace string
	Name      string
}

// keyOf returns the key of an object of a supported kind.
func keyOf(value runtime.Object) objectKey {
	meta := value.(metav1.Object)
	return objectKey{
		Kind:      objectKind(value.GetObjectKind().GroupVersionKind().Kind),
		Namespace: meta.GetNamespace(),
		Name:      meta.GetName(),
	}
}

// String returns "Service default/web" or "Node worker".
func (k objectKey) String() string {
	if k.Namespace != "" {
		return fmt.Sprintf("%s %s/%s", k.Kind, k.Namespace, k.Name)
	}
	return fmt.Sprintf("%s %s", k.Kind, k.Name)
}

// compare orders keys by kind, namespace and name.
func (k objectKey) compare(other objectKey) int {
	return cmp.Or(
		cmp.Compare(k.Kind, other.Kind),
		cmp.Compare(k.Namespace, other.Namespace),
		cmp.Compare(k.Name, other.Name),
	)
}

// object is a valid object and the place of its definition.
type object struct {
	place
	key   objectKey
	value runtime.Object
}

// identity is the type and the name of an object that was not decoded. Every
// field may be missing.
type identity struct {
	metav1.TypeMeta
	Metadata struct{ Namespace, Name string }
}

// identify returns the identity of a JSON object, which may be invalid.
// implied is the type of the items of a typed list, or nil.
func identify(value []byte, implied *schema.GroupVersionKind) identity {
	var id identity
	// Invalid fields stay empty. Decoding the object has reported them.
	_ = json.Unmarshal(value, &id)
	if implied != nil && id.Kind == "" {
		id.Kind = implied.Kind
	}
	return id
}

// String returns "Service default/web", "Deployment web", "Service" or "", in
// one line.
func (id identity) String() string {
	id.Kind, id.Metadata.Name = oneLine(id.Kind), oneLine(id.Metadata.Name)
	id.Metadata.Namespace = oneLine(id.Metadata.Namespace)
	if id.Kind == "" || id.Metadata.Name == "" {
		return id.Kind
	}
	key := objectKey{Kind: objectKind(id.Kind), Namespace: id.Metadata.Namespace, Name: id.Metadata.Name}
	if key.Kind.namespaced() {
		key.Namespace = cmp.Or(key.Namespace, metav1.NamespaceDefault)
	}
	return key.String()
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

const kindList = "List"

// versions are the group and version of each supported kind.
var versions = map[string]schema.GroupVersion{
	string(kindService):       corev1.SchemeGroupVersion,
	string(kindNode):          corev1.SchemeGroupVersion,
	string(kindEndpointSlice): discoveryv1.SchemeGroupVersion,
	string(kindServiceCIDR):   networkingv1.SchemeGroupVersion,
	kindList:                  corev1.SchemeGroupVersion,
}

// newDecoder returns a strict decoder of the supported kinds. It decodes
// lists, including typed lists such as ServiceList, to metav1.List. This way
// each item is decoded separately and has its own errors.
func newDecoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Service{}, &corev1.Node{})
	scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{})
	scheme.AddKnownTypes(networkingv1.SchemeGroupVersion, &networkingv1.ServiceCIDR{})
	for kind, version := range versions {
		scheme.AddKnownTypeWithName(version.WithKind(strings.TrimSuffix(kind, kindList)+kindList), &metav1.List{})
	}
	return serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme,
		serializer.SerializerOptions{Strict: true})
}

// misspelled returns an error if a type that is not supported is close to one
// that is. Types of other programs, such as the Services of Knative, are not.
func misspelled(got schema.GroupVersionKind) error {
	stem, list := strings.CutSuffix(got.Kind, kindList)
	if stem == "" {
		stem, list = kindList, false
	}
	meant, ok := suggest.Closest(stem, string(kindService), string(kindEndpointSlice), string(kindNode),
		string(kindServiceCIDR), kindList)
	version := versions[meant]
	if _, near := suggest.Closest(got.Group, version.Group); !ok || !near && !ofKubernetes(got.Group) {
		return nil
	}
	if list {
		meant += kindList
	}
	switch gotVersion := got.GroupVersion(); {
	case gotVersion == version:
		return fmt.Errorf("kind: %q is unknown: did you mean %q?", got.Kind, meant)
	case got.Kind == meant:
		return fmt.Errorf("apiVersion: %q of %s is not supported: did you mean %q?", gotVersion, meant, version)
	default:
		return fmt.Errorf("kind: %q of %q is unknown: did you mean %q of %q?", got.Kind, gotVersion, meant, version)
	}
}

// ofKubernetes reports whether an API group belongs to Kubernetes.
func ofKubernetes(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
