package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/doctor"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// States of a proxy.
const (
	stateHealthy     = "healthy"
	stateDegraded    = "degraded"
	stateUnreachable = "unreachable"
)

// exitCodes are the exit codes of states that are not healthy.
var exitCodes = map[string]int{stateDegraded: 1, stateUnreachable: 2}

// status is the output of the command status.
type status struct {
	State string `json:"state"`
	// Problems are the reasons for the state, as sentences without a period.
	Problems []string `json:"problems,omitempty"`
	// Proxy is nil if the proxy is unreachable.
	Proxy *answer.ProxyStatus `json:"proxy,omitempty"`
	// Conntrack is nil if the kernel does not track connections.
	Conntrack *conntrack.Usage `json:"conntrack,omitempty"`
	// Tables are those in the kernel if the proxy is unreachable.
	Tables []kernelTable `json:"tables,omitempty"`
	// Warnings are checks of doctor that warn or fail.
	Warnings []doctor.Finding `json:"warnings,omitempty"`
}

func newStatus(version string) *cobra.Command {
	var flags proxyFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether the proxy of this node works",
		Long: "status shows the state of the proxy in this network namespace, the rows of its tables, and the " +
			"service ports that it cannot serve. If the proxy does not answer, it shows the tables in the kernel.\n\n" +
			"The exit code is 0 if the proxy is healthy, 1 if it is degraded, and 2 if it does not answer. It is " +
			"degraded if it has not received all Services yet, if a sync failed or a change waits too long, if a " +
			"service port cannot be updated, if load balancers must not use the node, or if a fast check of doctor " +
			"fails. Checks that warn, and frontends that several Services claim, are listed, but do not make it " +
			"degraded. With -o wide, the checks have details and remedies.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := askStatus(cmd.Context(), &flags, version)
			err := flags.output.write(cmd.OutOrStdout(), s, s.print)
			if code := exitCodes[s.State]; err == nil && code != 0 {
				err = exitError{code: code}
			}
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags.add(cmd, 5*time.Second)
	return cmd
}

// askStatus returns the status of the proxy, or of the kernel if the proxy
// does not answer.
func askStatus(ctx context.Context, flags *proxyFlags, version string) *status {
	s := &status{}
	if usage, err := conntrack.ReadUsage("/"); err == nil {
		s.Conntrack = &usage
	}
	var err error
	s.Proxy, err = flags.status(ctx, flags.timeout*4/5)
	report := doctor.Run(ctx, doctor.Config{Version: version, Fast: true, Proxy: s.Proxy, ProxyError: err})
	s.Warnings = slices.DeleteFunc(report.Findings, func(f doctor.Finding) bool { return !f.Bad() })
	if err == nil {
		s.judge()
		return s
	}
	s.State, s.Problems = stateUnreachable, []string{err.Error()}
	if s.Tables, err = readTables(); err != nil {
		s.Problems = append(s.Problems, err.Error())
	}
	return s
}

// judge decides whether the proxy is healthy.
func (s *status) judge() {
	s.State, s.Problems = stateHealthy, problemsOf(s.Proxy)
	for _, f := range s.Warnings {
		if f.Result == doctor.Fail {
			s.Problems = append(s.Problems, fmt.Sprintf("%s: %s; see %s doctor", f.Check, f.Reason, Name))
		}
	}
	if len(s.Problems) > 0 {
		s.State = stateDegraded
	}
}

// problemsOf returns why a proxy is degraded.
func problemsOf(p *answer.ProxyStatus) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if !p.Listed {
		add("the first lists of Services and EndpointSlices are not complete")
	}
	if !p.NodeEligible {
		add("load balancers must not use this node: it has no Node object, or the object is about to be deleted")
	}
	for i := range p.Families {
		f := &p.Families[i]
		switch {
		case f.LastSync != nil && f.LastSync.Error != "":
			add("%s: the last sync failed: %s", f.Family.Name(), f.LastSync.Error)
		case !f.Healthy && f.Outage == nil: // doctor reports an outage
			add("%s: a change has been waiting for a sync for %s", f.Family.Name(), age(p.Time, f.WaitingSince))
		case p.Listed && f.Synced.IsZero():
			add("%s: no sync has succeeded yet", f.Family.Name())
		}
		if f.Refused > 0 {
			add("%s: service ports that cannot be updated: %d", f.Family.Name(), f.Refused)
		}
	}
	return problems
}

// kernelTable is a table of a proxy in the kernel.
type kernelTable struct {
	Name string `json:"name"` // ip kube-proxy
	// State is whose table it is, and whether packets use it.
	State string `json:"state"`
	// Rows is the number of rows by set, for sets that have any. It is empty if
	// the kernel does not report it (before Linux 6.15).
	Rows map[string]int `json:"rows,omitempty"`
}

// readTables reads the tables of all families.
func readTables() ([]kernelTable, error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var tables []kernelTable
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		t, err := readTable(conn, &nft.Table{Family: f, Name: ruleset.TableName})
		if errors.Is(err, unix.EPERM) {
			return nil, node.ErrPermission
		}
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func readTable(conn *nft.Conn, table *nft.Table) (t kernelTable, err error) {
	t = kernelTable{
		Name: table.Family.String() + " " + table.Name, Rows: make(map[string]int),
		State: "not written by nftproxy; kube-proxy's table has the same name",
	}
	found, ok, err := conn.FindTable(table)
	if err != nil || !ok {
		t.State = "does not exist"
		return t, err
	}
	sets, err := conn.Sets(table)
	for _, s := range sets {
		if s.Name == ruleset.OwnSet {
			t.State = "written by nftproxy, and in use"
		}
		if s.Count > 0 {
			t.Rows[s.Name] = s.Count
		}
	}
	if found.Flags&unix.NFT_TABLE_F_DORMANT != 0 {
		t.State = "dormant: packets do not use it"
	}
	return t, err
}
