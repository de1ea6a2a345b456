package socket

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Question is a kind of queries Q to a proxy, which answers each with values A.
type Question[Q, A any] struct {
	// Path is the path of the protocol. A change that is not compatible needs a
	// new path.
	Path string
	// Format returns a query as parameters. Parse is its inverse.
	Format func(Q) url.Values
	Parse  func(url.Values) (Q, error)
}

// Plain returns a question without parameters.
func Plain[A any](path string) Question[struct{}, A] {
	return Question[struct{}, A]{
		Path: path, Format: func(struct{}) url.Values { return nil },
		Parse: func(url.Values) (query struct{}, err error) { return query, nil },
	}
}

// Answer answers a query. It calls yield for each value of the answer, and
// returns its error. An error after some values means that the answer is not
// complete.
type Answer[Q, A any] func(ctx context.Context, query Q, yield func(*A) error) error

// Page is a question that a Server answers.
type Page struct {
	path    string
	handler http.HandlerFunc
}

// NotFound is an error about an object that the proxy does not have.
type NotFound string

// Error implements error.
func (e NotFound) Error() string { return string(e) }

// flushPeriod is how long a value may wait for others before it is sent.
const flushPeriod = 100 * time.Millisecond

// errorTrailer is the HTTP trailer with the error of an answer that is not
// complete.
const errorTrailer = "Error"

// failure is the body of an answer that is an error.
type failure struct {
	Error string `json:"error"`
}

// AnsweredBy returns the page of a question. It answers with JSON values, one
// per line. The context ends when the client closes the connection.
func (q Question[Q, A]) AnsweredBy(answer Answer[Q, A]) Page {
	return Page{q.Path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		encoder, began, flushed := json.NewEncoder(w), false, time.Now()
		query, err := q.Parse(r.URL.Query())
		if err == nil {
			err = answer(r.Context(), query, func(v *A) error {
				if !began {
					w.Header().Set("Trailer", errorTrailer)
				}
				began = true
				err := encoder.Encode(v)
				if err == nil && time.Since(flushed) >= flushPeriod {
					flushed = time.Now()
					err = http.NewResponseController(w).Flush()
				}
				return err
			})
		}
		switch {
		case err == nil:
		case began:
			w.Header().Set(errorTrailer, strings.ReplaceAll(err.Error(), "\n", "; "))
		default:
			refuse(w, err)
		}
	}}
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if _, ok := errors.AsType[NotFound](err); ok {
		code = http.StatusNotFound
	} else if errors.Is(err, context.DeadlineExceeded) {
		code = http.StatusServiceUnavailable
	}
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(failure{err.Error()}) // it fails only if the client is gone
}

// Ask asks a proxy, and returns the values of the answer while they arrive. An
// error is the last one.
func (q Question[Q, A]) Ask(ctx context.Context, c *Client, query Q) iter.Seq2[*A, error] {
	return func(yield func(*A, error) bool) {
		response, err := c.get(ctx, q.Path+"?"+q.Format(query).Encode())
		if err != nil {
			yield(nil, err)
			return
		}
		defer response.Body.Close()
		for decoder := json.NewDecoder(response.Body); ; {
			v := new(A)
			err := decoder.Decode(v)
			switch {
			case err == io.EOF:
				if text := response.Trailer.Get(errorTrailer); text != "" {
					yield(nil, errors.New(text))
				}
				return
			case err != nil:
				yield(nil, c.failed(err))
				return
			case !yield(v, nil):
				return
			}
		}
	}
}

// AskOne asks a question whose answer is one value.
func (q Question[Q, A]) AskOne(ctx context.Context, c *Client, query Q) (*A, error) {
	for v, err := range q.Ask(ctx, c, query) {
		return v, err
	}
	return nil, c.failed(io.ErrUnexpectedEOF)
}
