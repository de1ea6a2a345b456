package app

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/test/script"
)

// TestScripts runs the scripts about kube-proxy as a program, and about its
// status pages. These are their steps:
//
//	kube-proxy [FLAG…]       runs it, and prints its output
//	rest-config FILE [URL]   prints the API server of a kubeconfig, "" for none, and --master
//	start [FLAG…]            starts a status server with all pages
//	start-flagz              starts a page with three flags
//	get PATH [ACCEPT…]       prints status, type, and the first 20 lines of an answer
//	put|post|delete PATH [BODY]
//	verbosity                prints the verbosity of the log
//	metrics PATH NAME…       prints metrics of a page, without process-specific values
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Setup: func(*script.Env) (map[string]script.Command, error) {
		var pages http.Handler
		request := func(method string) any {
			return func(path string, args ...string) string {
				accept, body := strings.Join(args, " "), ""
				if method != http.MethodGet {
					accept, body = "", accept
				}
				return request(pages, method, path, accept, body)
			}
		}
		return script.Steps(map[string]any{
			"kube-proxy":  runProgram,
			"rest-config": restConfig,
			"start":       func(flags ...string) { pages = pagesOf(t, statusOptions(t, flags...)) },
			"start-flagz": func() {
				pages = flagz(func() map[string]string {
					return map[string]string{"v": "2", "config": "/var/lib/config.conf", "empty": ""}
				})
			},
			"get": request(http.MethodGet), "put": request(http.MethodPut), "post": request(http.MethodPost),
			"delete": request(http.MethodDelete),
			"verbosity": func() (v klog.Level) {
				for klog.V(v + 1).Enabled() {
					v++
				}
				return v
			},
			"metrics": func(path string, names ...string) (text string) {
				families := scrape(t, pages, path)
				if len(names) == 0 {
					return fmt.Sprintf("%d metrics\n", len(families))
				}
				for _, name := range names {
					for _, m := range families[name].GetMetric() {
						text += fmt.Sprintln(name, m.GetCounter().GetValue()+m.GetGauge().GetValue())
					}
				}
				return text
			},
		}), nil
	}})
}

func runProgram(args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	if code := Main(args, &stdout, &stderr); code != 0 {
		return "", fmt.Errorf("exit code %d: %s", code, singleLine(strings.TrimSuffix(stderr.String(), "\n")))
	}
	return strings.ReplaceAll(stdout.String(), Version, "VERSION"), nil
}

// singleLine returns an error that is one line.
func singleLine(text string) string {
	if strings.Contains(text, "\n") {
		return "not one line: " + text
	}
	return text
}

func restConfig(s *script.Script, file string, master ...string) (string, error) {
	if _, err := os.Stat(s.MkAbs(file)); file != "" && err == nil {
		file = s.MkAbs(file)
	}
	c, err := loadRESTConfig(file, strings.Join(master, ""))
	if err != nil {
		return "", errors.New(singleLine(err.Error()))
	}
	return c.Host + "\n", nil
}

// request prints an answer. Times and versions are replaced.
func request(pages http.Handler, method, path, accept, body string) string {
	const maxLines = 20
	r := ask(pages, method, path, accept, body)
	text := fmt.Sprintf("%d %s\n", r.Code, r.Header().Get("Content-Type"))
	if warning := r.Header().Get("Warning"); warning != "" {
		text += "Warning: " + warning + "\n"
	}
	for i, line := range strings.SplitAfter(r.Body.String(), "\n") {
		if i < maxLines {
			text += line
		}
	}
	text = strings.NewReplacer(runtime.Version(), "GO", `"`+Version+`"`, `"VERSION"`, ": "+Version+"\n", ": VERSION\n").
		Replace(text)
	moments := regexp.MustCompile(
		`\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \w+ 20\d\d|20..-..-..T..:..:..Z|\d+ hr \d\d min \d\d sec|` +
			`"uptimeSeconds": \d+`)
	text = moments.ReplaceAllString(text, "TIME")
	return strings.TrimSuffix(text, "\n") + "\n"
}
