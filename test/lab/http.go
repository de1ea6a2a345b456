package lab

import (
	"context"
	"io"
	"net/http"
	"time"
)

// HTTPClient returns a client whose connections begin in the namespace, one for
// each request.
func (n *Namespace) HTTPClient(timeout time.Duration) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true},
		Timeout: timeout}
}

// Get requests a page, and returns the response and its body.
func (n *Namespace) Get(ctx context.Context, url string, timeout time.Duration) (*http.Response, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	response, err := n.HTTPClient(timeout).Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, body, err
}
