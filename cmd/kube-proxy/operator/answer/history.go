package answer

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/history"
)

// History asks what happened to service ports and tables.
var History = socket.Question[history.Query, HistoryEntry]{
	Path: "/v1/history",
	Format: func(q history.Query) url.Values {
		return url.Values{"namespace": {q.Namespace}, "name": {q.Name}, "since": {q.Since.String()}}
	},
	Parse: func(v url.Values) (history.Query, error) {
		since, err := time.ParseDuration(v.Get("since"))
		name := cluster.ServiceName{Namespace: v.Get("namespace"), Name: v.Get("name")}
		return history.Query{ServiceName: name, Since: since}, err
	},
}

// HistoryEntry is an entry of the history, with its text for people.
type HistoryEntry struct {
	history.Entry
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// history answers the question in the order of time. It does not wait for a
// sync, except for a query that names a Service without an entry.
func (a *Answers) history(ctx context.Context, q history.Query, yield func(*HistoryEntry) error) error {
	entries := a.config.Proxy.History(q)
	if len(entries) == 0 && q.Name != "" {
		names, _, err := a.namesOf(ctx, q.ServiceName)
		if len(names) == 0 && err == nil {
			err = fmt.Errorf("%s: %w", q.ServiceName, ErrNoService)
		}
		return err
	}
	for i := range entries {
		e := &entries[i]
		if err := yield(&HistoryEntry{*e, e.Subject(), e.Text()}); err != nil {
			return err
		}
	}
	return nil
}
