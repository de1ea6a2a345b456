package app

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"

	"k8s.io/component-base/logs"
)

// addProfiling adds the profiles of the Go runtime and a page that changes
// the log verbosity. As in kube-proxy, there is no page of the command line.
func addProfiling(mux *http.ServeMux) {
	mux.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusFound))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/flags", listDebugFlags)
	mux.HandleFunc("/debug/flags/", listDebugFlags)
	mux.HandleFunc("/debug/flags/v", setVerbosity)
}

// listDebugFlags lists the flags that can be changed at run time.
func listDebugFlags(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	io.WriteString(w, "<html><head><title>/debug/flags/</title></head><body><p>Flags that a PUT request changes:</p>"+
		"<ul><li>/debug/flags/v</li></ul></body></html>\n")
}

// maxVerbosityBody is the maximum size of a request to change the verbosity.
const maxVerbosityBody = 64

// setVerbosity sets the log verbosity to the body of a PUT request.
func setVerbosity(w http.ResponseWriter, r *http.Request) {
	code, answer := http.StatusNotAcceptable, "unsupported http method"
	if r.Method == http.MethodPut {
		code, answer = http.StatusOK, ""
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxVerbosityBody))
		if err == nil {
			answer, err = logs.GlogSetter(string(body))
		}
		if err != nil {
			code, answer = http.StatusBadRequest, err.Error()
		}
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	fmt.Fprintln(w, answer)
}
