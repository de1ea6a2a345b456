package app

import (
	"cmp"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

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
func negotiate(accept []string, kind string) (representation, bool) {
	clauses := parseAccept(accept)
	if len(clauses) == 0 {
		return representation{media: mediaText}, true
	}
	for _, c := range clauses {
		if r, ok := c.representation(kind); ok {
			return r, true
		}
	}
	return representation{}, false
}

// acceptClause is one alternative of an Accept header.
type acceptClause struct {
	media   string
	params  map[string]string
	quality float64
}

// parseAccept returns the alternatives, the preferred first. An invalid one
// becomes a clause that no representation satisfies.
func parseAccept(headers []string) []acceptClause {
	var out []acceptClause
	for _, part := range strings.Split(strings.Join(headers, ","), ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		media, params, err := mime.ParseMediaType(part)
		c := acceptClause{media, params, 1}
		if q, ok := params["q"]; ok && err == nil {
			c.quality, err = strconv.ParseFloat(q, 64)
		}
		if err != nil {
			c = acceptClause{}
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b acceptClause) int { return cmp.Compare(b.quality, a.quality) })
	return out
}

// representation returns the representation that satisfies the clause.
func (c acceptClause) representation(kind string) (representation, bool) {
	as, version := c.params["as"], c.params["v"]
	if as == "" {
		return representation{media: mediaText}, c.matches(mediaText)
	}
	if _, known := zpageVersion(version); !known || as != kind || c.params["g"] != zpagesGroup {
		return representation{}, false
	}
	for _, media := range []string{mediaJSON, mediaYAML} {
		if c.matches(media) {
			return representation{media, version}, true
		}
	}
	return representation{}, false
}

// matches reports whether media is in the clause's range, such as text/*.
func (c acceptClause) matches(media string) bool {
	major, _, _ := strings.Cut(media, "/")
	return c.media == media || c.media == "*/*" || c.media == major+"/*"
}
