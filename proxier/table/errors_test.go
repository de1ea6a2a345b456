package table_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// The kernel refuses a change of a Service in so many syncs. If the error can
// pass, updates try it again three times. Other changes do not wait for it,
// unless the error refers to no row. If it does not pass, the service port
// keeps what is left of its last rules. The columns are the numbers of syncs,
// updates and rewrites that fail, and the number of the sync that writes the
// other change.
func TestRefusedChange(t *testing.T) {
	for line := range strings.SplitSeq(strings.TrimSpace(`
		ENOMEM          | 1 | 1 1 0 1
		EINTR           | 2 | 2 2 0 1
		EAGAIN          | 5 | 3 4 0 1 refused
		EBUSY           | 5 | 3 4 0 1 refused
		EEXIST          | 5 | 0 1 1 1 refused
		ENOENT          | 5 | 0 1 1 1 refused
		EEXIST in fight | 5 | 3 4 0 1 refused
		EINVAL          | 5 | 0 1 0 1 refused
		ENOBUFS unsent  | 1 | 1 1 0 2
		ENOBUFS unsent  | 5 | 5 5 1 6
		ENOMEM untagged | 5 | 5 5 1 6
		EPERM untagged  | 5 | 5 5 0 6`), "\n") {
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		t.Run(cells[0]+cells[1], func(t *testing.T) {
			t.Parallel()
			tabletest.NewNamespace(t)
			var n int
			fmt.Sscan(cells[1], &n)
			if got := refusedChange(t, strings.Fields(cells[0]), n); got != cells[2] {
				t.Errorf("got %s, want %s", got, cells[2])
			}
		})
	}
}

// refusedChange changes two Services, and refuses one change in n syncs.
func refusedChange(t *testing.T, fault []string, n int) (result string) {
	e := newEngine(t)
	must := func(_ string, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tabletest.PassSample(e.model)
	must(e.start(nil, nil))
	sync, check := e.each((*table.Table).Sync), e.each((*table.Table).Check)
	must(sync(nil, nil))
	if strings.HasSuffix(strings.Join(fault, " "), "fight") {
		e.limits.FirstPause, e.limits.LastPause, fault = time.Minute, time.Minute, fault[:1]
		for range 2 { // the next repair has to wait
			must(runNFT(nil, []string{"flush chain ip kube-proxy services"}))
			must(check(nil, nil))
		}
	}
	must(e.refuse(nil, append([]string{"default/web:http"}, fault...)))
	updates, rewrites, others, failed := 0, 0, 0, 0
	e.failed = func(b *nft.Batch) {
		if b.Len() > 8000 {
			rewrites++
		} else {
			updates++
		}
	}
	web, lb := parseName("default/web"), parseName("default/lb")
	e.model.SetEndpoints(web, "web", []*cluster.Endpoint{tabletest.Endpoint("10.244.1.5"),
		tabletest.Endpoint("10.244.3.5"), tabletest.Endpoint("10.244.9.9")})
	tabletest.SetEndpoint(e.model, lb, tabletest.Endpoint("10.244.9.10"))
	for i := range 10 {
		if i == n {
			e.always = nil
		}
		if _, err := sync(nil, nil); err != nil || !e.tables[0].UpToDate() {
			failed++
		}
		if served, _ := e.served(nil, []string{"default/lb"}); others == 0 && served == "3/3\n" {
			others = i + 1
		}
	}
	result = fmt.Sprint(failed, updates, rewrites, others)
	want := "1/3\n"
	if refused := e.events.Of(cluster.ReasonRefused); len(refused) > 0 {
		result, want = result+" refused", "1/2\n" // without the endpoint that is gone
		if len(refused) > 1 {
			t.Errorf("got events about %q, want one", refused)
		}
	}
	if got, _ := e.served(nil, []string{"default/web"}); got != want {
		t.Errorf("got frontends and endpoints %s, want %s", got, want)
	}
	must(e.wanted(nil, nil))
	must(e.each((*table.Table).Resync)(nil, nil))
	if s := e.tables[0].Stats(); s.Refused > 0 || !e.tables[0].UpToDate() {
		t.Errorf("after a resync: got %d refused service ports, up to date: %v", s.Refused, e.tables[0].UpToDate())
	}
	must(e.wanted(nil, nil))
	return result
}
