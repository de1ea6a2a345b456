package app

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Media types of the status pages.
const (
	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
	mediaText = "text/plain"
)

// refuseMediaType answers 406.
func refuseMediaType(w http.ResponseWriter) {
	writeObject(w, http.StatusNotAcceptable, mediaJSON, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message: fmt.Sprintf("only the following media types are accepted: %s, %s, %s",
			mediaJSON, mediaYAML, mediaText),
		Reason: metav1.StatusReasonNotAcceptable,
		Code:   http.StatusNotAcceptable,
	})
}

// representation is a format of a page: text if version is empty, otherwise
// an object of this API version in a media type.
type representation struct{ media, version string }

// negotiate returns the representation that the client prefers. The default
// is text. An object needs all parameters of its type: application/json alone
// is not acceptable, as in kube-proxy.
func negotiate(accept, kind string) (r representation, ok bool) {
	for _, clause := range goautoneg.ParseAccept(cmp.Or(accept, mediaText)) {
		as, version := clause.Params["as"], clause.Params["v"]
		if as == "" && matches(clause, mediaText) {
			return representation{media: mediaText}, true
		}
		if as != kind || clause.Params["g"] != zpagesGroup || !slices.Contains(zpageVersions, version) {
			continue
		}
		for _, media := range []string{mediaJSON, mediaYAML} {
			if matches(clause, media) {
				return representation{media, version}, true
			}
		}
	}
	return representation{}, false
}

// matches reports whether media is in the clause's range, such as text/*.
func matches(clause goautoneg.Accept, media string) bool {
	major, minor, _ := strings.Cut(media, "/")
	return clause.Type == major && (clause.SubType == minor || clause.SubType == "*") ||
		clause.Type == "*" && clause.SubType == "*"
}
