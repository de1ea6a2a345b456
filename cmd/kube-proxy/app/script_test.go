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
		request := func(method string) script.Command {
			return func(_ *script.Script, args []string) (string, error) {
				accept, body := strings.Join(args[1:], " "), ""
				if method != http.MethodGet {
					accept, body = "", accept
				}
				return request(pages, method, args[0], accept, body), nil
			}
		}
		return map[string]script.Command{
			"kube-proxy":  runProgram,
			"rest-config": restConfig,
			"start": func(_ *script.Script, args []string) (string, error) {
				pages = pagesOf(t, statusOptions(t, args...))
				return "", nil
			},
			"start-flagz": func(*script.Script, []string) (string, error) {
				pages = flagz(func() map[string]string {
					return map[string]string{"v": "2", "config": "/var/lib/config.conf", "empty": ""}
				})
				return "", nil
			},
			"get": request(http.MethodGet), "put": request(http.MethodPut), "post": request(http.MethodPost),
			"delete": request(http.MethodDelete),
			"verbosity": func(*script.Script, []string) (string, error) {
				v := 0
				for klog.V(klog.Level(v + 1)).Enabled() {
					v++
				}
				return fmt.Sprintln(v), nil
			},
			"metrics": func(_ *script.Script, args []string) (text string, err error) {
				families := scrape(t, pages, args[0])
				if len(args) == 1 {
					return fmt.Sprintf("%d metrics\n", len(families)), nil
				}
				for _, name := range args[1:] {
					for _, m := range families[name].GetMetric() {
						text += fmt.Sprintln(name, m.GetCounter().GetValue()+m.GetGauge().GetValue())
					}
				}
				return text, nil
			},
		}, nil
	}})
}

func runProgram(_ *script.Script, args []string) (string, error) {
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

func restConfig(s *script.Script, args []string) (string, error) {
	file := args[0]
	if _, err := os.Stat(s.MkAbs(file)); file != "" && err == nil {
		file = s.MkAbs(file)
	}
	c, err := loadRESTConfig(file, strings.Join(args[1:], ""))
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
