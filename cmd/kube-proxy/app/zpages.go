package app

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/config"
)

// The pages /flagz (KEP-4828) and /statusz (KEP-4827) are text by default. A
// client gets an object of the group config.k8s.io with an Accept header such
// as application/json;v=v1beta1;g=config.k8s.io;as=Flagz.
const (
	zpagesGroup     = "config.k8s.io"
	zpagesComponent = "kube-proxy"
)

// zpageVersions are the API versions of the pages. zpageOld is deprecated.
var zpageVersions = []string{zpageOld, "v1beta1"}

const zpageOld = "v1alpha1"

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

// zpageHeader is the beginning of the text of kube-proxy's pages.
const zpageHeader = "\n%s %s\nWarning: This endpoint is not meant to be machine parseable, " +
	"has no formatting compatibility guarantees and is for debugging purposes only.\n"

// zpageDeprecated is kube-proxy's warning of a deprecated API version.
const zpageDeprecated = `299 - "This version of the %s endpoint is deprecated. Please use a newer version."`

// flagz serves the flags and their values.
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

// statusz serves versions, times and the list of pages.
func statusz(pages []string) http.Handler {
	folders := topFolders(pages)
	start := legacyregistry.GetProcessStart()
	return zpage("Statusz",
		func(w *bytes.Buffer) {
			up := int(time.Since(start).Seconds())
			fmt.Fprintf(w, "\nStarted: %s\nUp: %d hr %02d min %02d sec\n",
				start.Format(time.UnixDate), up/3600, up/60%60, up%60)
			fmt.Fprintf(w, "Go version: %s\nBinary version: %s\nEmulation version: %s\nPaths: %s\n",
				runtime.Version(), Version, config.KubernetesVersion, strings.Join(folders, " "))
		},
		func(o zpageObject) any {
			up := int64(time.Since(start).Seconds())
			return statuszObject{
				o, metav1.NewTime(start), up, runtime.Version(), Version, config.KubernetesVersion, folders,
			}
		},
	)
}

// topFolders returns the first elements of paths, sorted, without duplicates.
func topFolders(paths []string) []string {
	var out []string
	for _, p := range paths {
		out = append(out, "/"+strings.Split(p, "/")[1])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// zpage serves text or an object, according to the Accept header.
func zpage(kind string, writeText func(*bytes.Buffer), object func(zpageObject) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want, ok := negotiate(strings.Join(r.Header.Values("Accept"), ","), kind)
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
			if want.version == zpageOld {
				w.Header().Set("Warning", fmt.Sprintf(zpageDeprecated, strings.ToLower(kind)))
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
		klog.ErrorS(err, "Failed to encode a status page")
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	w.Write(body)
}

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
