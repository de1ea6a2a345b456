package result

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table writes all figures as tables, for people.
func (r *Result) Table(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%s\n%s\n\n", r.Command, r.Machine, r.about())
	for _, section := range []struct {
		title string
		head  []string
		rows  func(*Run) [][]string
	}{
		{"Starts", []string{"cold start", "CPU", "longest transaction", "restart", "CPU", "longest transaction"}, startRows},
		{"One change, API write to commit", []string{"change", "p50", "p99", "watch alone p50", "p99", "above it p50", "CPU", "sent", "received", "n"}, changeRows},
		{"1 % of the Services at once", []string{"changes", "p50", "max", "watch alone p50", "CPU", "n"}, burstRows},
		{"Churn", []string{"changes/s", "p50", "p99", "max", "watch alone p50", "p99", "CPU", "of one core"}, churnRows},
		{"Sent to the kernel", []string{"cold start", "bytes", "received", "restart", "bytes", "received", "burst", "bytes", "received"}, trafficRows},
		{"Memory", []string{"started", "high water", "with children", "after changes", "high water", "with children", "after churn", "high water", "with children", "slab"}, memoryRows},
	} {
		if err := r.section(w, section.title, section.head, section.rows); err != nil {
			return err
		}
	}
	if len(r.Stalls) > 0 {
		fmt.Fprintf(w, "The kernel's log:\n%s\n", strings.Join(r.Stalls, "\n"))
		return nil
	}
	_, err := fmt.Fprintln(w, "No soft lockup or stall in the kernel's log.")
	return err
}

// about tells when what was measured.
func (r *Result) about() string {
	var versions []string
	for proxy, version := range r.Versions {
		versions = append(versions, proxy+": "+version)
	}
	slices.Sort(versions)
	return strings.Join(append(versions, r.Date.Format("2006-01-02 15:04 UTC")), ", ")
}

// section writes a table with the rows of all runs, unless there are none.
func (r *Result) section(w io.Writer, title string, head []string, rows func(*Run) [][]string) error {
	const padding = 2
	t := tabwriter.NewWriter(w, 0, 0, padding, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "services\tproxy\t%s\t\n", strings.Join(head, "\t"))
	any := false
	for _, run := range r.Runs {
		for _, row := range rows(run) {
			any = true
			fmt.Fprintf(t, "%d x %d\t%s\t%s\t\n", run.Services, run.Endpoints, run.Proxy, strings.Join(row, "\t"))
		}
	}
	if !any {
		return nil
	}
	fmt.Fprintln(w, title)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

func startRows(r *Run) [][]string {
	c, s := r.ColdStart, r.Restart
	return [][]string{{
		seconds(c.Times.P50), seconds(c.CPU), seconds(c.Traffic.Longest), seconds(s.Times.P50), seconds(s.CPU), seconds(s.Traffic.Longest),
	}}
}

func changeRows(r *Run) (rows [][]string) {
	for _, kind := range Kinds() {
		if c := r.Changes[kind]; c != nil {
			rows = append(rows, []string{
				string(kind), seconds(c.Times.P50), seconds(c.Times.P99), seconds(c.Floor.P50), seconds(c.Floor.P99), seconds(c.AboveFloor.P50),
				seconds(c.CPU), bytes(c.Traffic.Sent), bytes(c.Traffic.Received), fmt.Sprint(c.Times.N),
			})
		}
	}
	return rows
}

func burstRows(r *Run) [][]string {
	b := r.Burst
	return [][]string{{
		fmt.Sprint(b.Changes), seconds(b.Times.P50), seconds(b.Times.Max), seconds(b.Floor.P50), seconds(b.CPU), fmt.Sprint(b.Times.N),
	}}
}

func churnRows(r *Run) [][]string {
	c := r.Churn
	if c == nil {
		return nil
	}
	return [][]string{{
		fmt.Sprint(c.Rate), seconds(c.Times.P50), seconds(c.Times.P99), seconds(c.Times.Max), seconds(c.Floor.P50), seconds(c.Floor.P99),
		seconds(c.CPU), fmt.Sprintf("%.1f %%", 100*c.CPU/c.Seconds),
	}}
}

func trafficRows(r *Run) [][]string {
	var row []string
	for _, t := range []Traffic{r.ColdStart.Traffic, r.Restart.Traffic, r.Burst.Traffic} {
		lost := ""
		if t.Lost {
			lost = "> "
		}
		row = append(row, fmt.Sprintf("%s%.0f sends", lost, t.Sends), bytes(t.Sent), bytes(t.Received))
	}
	return [][]string{row}
}

func memoryRows(r *Run) [][]string {
	row := append(usage(&r.Memory.Start), usage(&r.Memory.Changes)...)
	return [][]string{append(append(row, usage(r.Memory.Churn)...), bytes(float64(r.Memory.Slab)))}
}

func usage(u *Usage) []string {
	if u == nil {
		return []string{"", "", ""}
	}
	return []string{bytes(float64(u.RSS)), bytes(float64(u.HighWater)), bytes(float64(u.Tree))}
}

// seconds shows a time with three digits.
func seconds(s float64) string {
	const milli, micro = 1e-3, 1e-6
	switch {
	case s == 0:
		return "0"
	case s >= 1 || s <= -1:
		return fmt.Sprintf("%.3g s", s)
	case s >= milli || s <= -milli:
		return fmt.Sprintf("%.3g ms", s/milli)
	}
	return fmt.Sprintf("%.3g µs", s/micro)
}

// bytes shows a size.
func bytes(n float64) string {
	const kilo, mega = 1e3, 1e6
	switch {
	case n >= mega || n <= -mega:
		return fmt.Sprintf("%.1f MB", n/mega)
	case n >= kilo || n <= -kilo:
		return fmt.Sprintf("%.1f kB", n/kilo)
	}
	return fmt.Sprintf("%.0f B", n)
}
