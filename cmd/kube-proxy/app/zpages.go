package app

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

// The pages /flagz (KEP-4828) and /statusz (KEP-4827): text for people, and objects of the group config.k8s.io for clients
// that ask for one, as with `Accept: application/json;v=v1beta1;g=config.k8s.io;as=Flagz`.
const (
	zpagesGroup     = "config.k8s.io"
	zpagesComponent = "kube-proxy"
	// emulatedVersion is the version of Kubernetes whose kube-proxy this command stands in for.
	emulatedVersion = "1.36"
)

// zpageVersion says whether there are objects of a version, and whether it is deprecated.
func zpageVersion(version string) (deprecated, known bool) {
	return version == "v1alpha1", version == "v1alpha1" || version == "v1beta1"
}

type zpageObject struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   map[string]string `json:"metadata"`
}

type flagzObject struct {
	zpageObject `json:",inline"`
	Flags       map[string]string `json:"flags,omitempty"`
}

type statuszObject struct {
	zpageObject      `json:",inline"`
	StartTime        metav1.Time `json:"startTime"`
	UptimeSeconds    int64       `json:"uptimeSeconds"`
	GoVersion        string      `json:"goVersion"`
	BinaryVersion    string      `json:"binaryVersion"`
	EmulationVersion string      `json:"emulationVersion"`
	Paths            []string    `json:"paths"`
}

const zpageHeader = `
%s %s
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
`

// flagz shows the flags.
func flagz(flags func() map[string]string) http.Handler {
	return zpage("Flagz",
		func(w *bytes.Buffer) {
			all := flags()
			for _, name := range slices.Sorted(maps.Keys(all)) {
				fmt.Fprintf(w, "%s=%s\n", name, all[name])
			}
		},
		func(o zpageObject) any { return flagzObject{o, flags()} },
	)
}

// statusz shows versions and times, and which pages there are.
func statusz(pages []string) http.Handler {
	folders := topFolders(pages)
	start := legacyregistry.GetProcessStart()
	return zpage("Statusz",
		func(w *bytes.Buffer) {
			up := int(time.Since(start).Seconds())
			fmt.Fprintf(w, "\nStarted: %s\nUp: %d hr %02d min %02d sec\n", start.Format(time.UnixDate), up/3600, up/60%60, up%60)
			fmt.Fprintf(w, "Go version: %s\nBinary version: %s\nEmulation version: %s\nPaths: %s\n",
				runtime.Version(), Version, emulatedVersion, strings.Join(folders, " "))
		},
		func(o zpageObject) any {
			return statuszObject{
				o, metav1.NewTime(start), int64(time.Since(start).Seconds()), runtime.Version(), Version, emulatedVersion, folders,
			}
		},
	)
}

// topFolders returns the first elements of paths, in order, each once.
func topFolders(paths []string) []string {
	var out []string
	for _, p := range paths {
		out = append(out, "/"+strings.Split(p, "/")[1])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// zpage answers with text, or with an object, as the client asks.
func zpage(kind string, writeText func(*bytes.Buffer), object func(zpageObject) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want, ok := negotiate(r.Header.Values("Accept"), kind)
		switch {
		case !ok:
			refuseMediaType(w)
		case want.version == "":
			var body bytes.Buffer
			fmt.Fprintf(&body, zpageHeader, zpagesComponent, strings.ToLower(kind))
			writeText(&body)
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Write(body.Bytes())
		default:
			if deprecated, _ := zpageVersion(want.version); deprecated {
				w.Header().Set("Warning", fmt.Sprintf(`299 - "This version of the %s endpoint is deprecated. Please use a newer version."`, strings.ToLower(kind)))
			}
			contentType := fmt.Sprintf("%s;g=%s;v=%s;as=%s", want.media, zpagesGroup, want.version, kind)
			o := object(zpageObject{kind, zpagesGroup + "/" + want.version, map[string]string{"name": zpagesComponent}})
			writeObject(w, http.StatusOK, contentType, o)
		}
	})
}

func writeObject(w http.ResponseWriter, code int, contentType string, object any) {
	body, err := json.MarshalIndent(object, "", "  ")
	if err == nil && strings.HasPrefix(contentType, mediaYAML) {
		body, err = yaml.JSONToYAML(body)
	}
	if err != nil {
		klog.ErrorS(err, "Page cannot be shown")
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	w.Write(body)
}

// The media types of the pages.
const (
	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
	mediaText = "text/plain"
)

func refuseMediaType(w http.ResponseWriter) {
	writeObject(w, http.StatusNotAcceptable, mediaJSON, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message:  fmt.Sprintf("only the following media types are accepted: %s, %s, %s", mediaJSON, mediaYAML, mediaText),
		Reason:   metav1.StatusReasonNotAcceptable,
		Code:     http.StatusNotAcceptable,
	})
}

// representation is a form of a page: text, or the object of a version in a media type.
type representation struct{ media, version string }

// negotiate returns the form that a client likes best of those that there are, text if it does not say. Objects are for those who
// name them: an Accept header of application/json alone gets none.
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

// parseAccept returns the alternatives in the client's order. What makes no sense is left out.
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
			c = acceptClause{} // a clause that nothing satisfies, so that there is one
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b acceptClause) int { return cmp.Compare(b.quality, a.quality) })
	return out
}

// representation returns the form that satisfies the clause.
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

// matches says whether the clause's range of media types, such as text/*, has this one.
func (c acceptClause) matches(media string) bool {
	major, _, _ := strings.Cut(media, "/")
	return c.media == media || c.media == "*/*" || c.media == major+"/*"
}
