package apiclient

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

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
