package apiclient

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"
)

// The state has the resources that the API server refuses, until it answers
// again, and whether it has the address of the Service kubernetes.
func TestContactRefused(t *testing.T) {
	status := http.StatusForbidden
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) == "services" {
			w.WriteHeader(status)
		}
	}))
	defer server.Close()
	var contact Contact
	client := &http.Client{Transport: contact.Wrap(http.DefaultTransport)}
	for _, want := range []struct {
		status int
		text   string
	}{
		{http.StatusForbidden, "the API server refuses requests for services (403 Forbidden)"},
		{http.StatusGone, ""}, {http.StatusTooManyRequests, ""},
		{http.StatusUnauthorized, "the API server refuses requests for services (401 Unauthorized)"},
		{http.StatusOK, ""},
		{http.StatusInternalServerError, "the API server refuses requests for services (500 Internal Server Error)"},
	} {
		status = want.status
		for _, resource := range []string{"services", "nodes"} {
			response, err := client.Get(server.URL + "/api/v1/" + resource)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
		}
		if s := contact.State(); s.Trouble() != want.text || s.ViaService {
			t.Errorf("%d: got %q, via Service %v, want %q", want.status, s.Trouble(), s.ViaService, want.text)
		}
	}
	t.Setenv(serviceHost, "127.0.0.1")
	if _, err := client.Get(server.URL); err != nil {
		t.Fatal(err)
	}
	if !contact.State().ViaService {
		t.Error("got another address than the ClusterIP of the Service")
	}
	server.Close()
	if _, err := client.Get(server.URL); err == nil {
		t.Fatal("got an answer of a closed server")
	}
	if s := contact.State(); !strings.HasPrefix(s.Trouble(), "the API server does not answer: ") {
		t.Errorf("got %q after a failure", s.Trouble())
	}
}

func TestContact(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		fmt.Fprintln(w, "{}")
	}))
	var contact Contact
	client := &http.Client{Transport: contact.Wrap(http.DefaultTransport)}
	get := func(query string) error {
		response, err := client.Get(server.URL + "/api/v1/services" + query)
		if err == nil {
			_, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		return err
	}
	if s := contact.State(); !s.Answered.IsZero() || !s.Compared.IsZero() {
		t.Errorf("got %+v before the first request", s)
	}
	if err := get(""); err != nil {
		t.Fatal(err)
	}
	s := contact.State()
	if s.Answered.IsZero() || !s.Failed.IsZero() || len(s.Heard) != 0 {
		t.Errorf("got %+v after a list", s)
	}
	if off := s.AheadSeconds - 3600; off < -2 || off > 2 || s.Compared.IsZero() {
		t.Errorf("got a clock that is %v s ahead, want an hour", s.AheadSeconds)
	}
	if err := get("?watch=true"); err != nil {
		t.Fatal(err)
	}
	if s := contact.State(); s.Heard["services"].IsZero() {
		t.Errorf("got %+v after a watch", s)
	}
	server.Close()
	if err := get(""); err == nil {
		t.Fatal("got an answer of a closed server")
	}
	if s := contact.State(); !s.Failed.After(s.Answered) || s.Error == "" {
		t.Errorf("got %+v after a failure", s)
	}
}
