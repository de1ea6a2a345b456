package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// parsed is what one document, or a whole file, says. The places of what comes from a document hold its
// items only, since documents are kept from one read to the next and may move, see at.
type parsed struct {
	objects  []object
	problems []problem
	notices  []notice
}

// append adds what another document says.
func (p *parsed) append(other parsed) {
	p.objects = append(p.objects, other.objects...)
	p.problems = append(p.problems, other.problems...)
	p.notices = append(p.notices, other.notices...)
}

// at returns a copy whose places name the file and the document.
func (p parsed) at(file string, document int) parsed {
	var placed parsed
	for _, o := range p.objects {
		o.file, o.document = file, document
		placed.objects = append(placed.objects, o)
	}
	for _, p := range p.problems {
		p.place.file, p.place.document = file, document
		placed.problems = append(placed.problems, p)
	}
	for _, n := range p.notices {
		n.file, n.document = file, document
		placed.notices = append(placed.notices, n)
	}
	return placed
}

// problem notes an error in an item.
func (p *parsed) problem(item int, subject string, err error) {
	p.problems = append(p.problems, problem{place: place{item: item}, subject: subject, err: err})
}

// notice notes something worth a line in the log.
func (p *parsed) notice(item int, subject, text string) {
	p.notices = append(p.notices, notice{place: place{item: item}, subject: subject, text: text})
}

// parseDocument returns the objects of a document and what is wrong with it.
func parseDocument(serializer runtime.Decoder, doc document) parsed {
	var result parsed
	value, err := doc.toJSON()
	switch {
	case err != nil:
		result.problem(noItem, "", err)
	case !bytes.Equal(bytes.TrimSpace(value), []byte("null")):
		result.parseValue(serializer, value, nil, noItem)
	}
	return result
}

// parseValue reads one JSON object, whose type may be implied by the list that it is an item of.
func (p *parsed) parseValue(serializer runtime.Decoder, value []byte, implied *schema.GroupVersionKind, item int) {
	if !bytes.HasPrefix(bytes.TrimSpace(value), []byte("{")) {
		p.problem(item, "", errors.New("not an object"))
		return
	}
	decoded, gvk, err := serializer.Decode(value, implied, nil)
	switch {
	case runtime.IsNotRegisteredError(err):
		p.notice(item, identify(value, implied).full(), noticeSkipped)
		return
	case err != nil:
		for _, err := range decodeErrors(err) {
			p.problem(item, identify(value, implied).String(), err)
		}
		return
	}
	if list, ok := decoded.(*metav1.List); ok {
		p.parseList(serializer, list, *gvk, item)
		return
	}
	decoded.GetObjectKind().SetGroupVersionKind(*gvk)
	p.admit(decoded, item)
}

// parseList reads the items of a list. Those of a typed list, such as a ServiceList, need not tell their
// kind. A list is no item: kubectl takes lists apart once only.
func (p *parsed) parseList(serializer runtime.Decoder, list *metav1.List, gvk schema.GroupVersionKind, item int) {
	if item != noItem {
		p.problem(item, "", errors.New("a list in a list"))
		return
	}
	var implied *schema.GroupVersionKind
	if kind := strings.TrimSuffix(gvk.Kind, "List"); kind != "" {
		itemKind := gvk.GroupVersion().WithKind(kind)
		implied = &itemKind
	}
	for i, raw := range list.Items {
		p.parseValue(serializer, raw.Raw, implied, i)
	}
}

// decodeErrors takes the errors of strict decoding apart, and leaves the object's text out of the others.
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

// identity is what an object says of itself, as far as it can be made out.
type identity struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
}

// identify reads the identity of an object that may be wrong in any way.
func identify(value []byte, implied *schema.GroupVersionKind) identity {
	var id identity
	// An error leaves out what is wrong, and decoding the object reports it.
	_ = json.Unmarshal(value, &id)
	if implied != nil && id.Kind == "" {
		id.Kind = implied.Kind
	}
	return id
}

// String gives "Service default/web", "Deployment web", "Service" or nothing.
func (id identity) String() string {
	switch name := id.Metadata.Name; {
	case id.Kind == "" || name == "":
		return id.Kind
	case objectKind(id.Kind).namespaced():
		return objectKey{Kind: objectKind(id.Kind), Namespace: namespaceOr(id.Metadata.Namespace), Name: name}.String()
	case id.Metadata.Namespace != "":
		return id.Kind + " " + id.Metadata.Namespace + "/" + name
	default:
		return id.Kind + " " + name
	}
}

// full gives "apps/v1 Deployment web".
func (id identity) full() string {
	return id.APIVersion + " " + id.String()
}
