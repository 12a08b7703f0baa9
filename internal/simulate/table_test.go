package simulate

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quotactl/quotactl/jobs"
)

// outcomes are those of ticks, in the order in which they are shown.
var outcomes = []jobs.Outcome{jobs.Succeeded, jobs.Exhausted, jobs.Drained, jobs.Skipped, jobs.Failed, jobs.TimedOut, jobs.Missed, jobs.Lost}

// outcomes tells how many ticks came to what.
func (d day) outcomes() string {
	var list []string
	for _, outcome := range outcomes {
		if n := d.ticks[outcome]; n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, outcome))
		}
	}
	return strings.Join(list, ", ")
}

// table shows a month by days: what the upstream counted, and what was kept of it;
// beside it the month with a crontab; then what became of the daemons' ticks.
func table(m month, ours, theirs *tally) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	heads := strings.Repeat("REQUESTS\tUNITS\tREJECTED\tSEARCHES\tKEPT\tYIELD\t|\t", 2)
	_, _ = fmt.Fprintf(w, "DAY\t|\t%s", heads)
	for _, outcome := range outcomes {
		_, _ = fmt.Fprintf(w, "%s\t", strings.ToUpper(string(outcome)))
	}
	_, _ = fmt.Fprintln(w)
	row := func(name string, a, b day, days int) {
		_, _ = fmt.Fprintf(w, "%s\t|\t%s|\t%s|\t", name, a.row(days), b.row(days))
		for _, outcome := range outcomes {
			_, _ = fmt.Fprintf(w, "%d\t", a.ticks[outcome])
		}
		_, _ = fmt.Fprintln(w)
	}
	for i := range ours.days {
		row(m.midnight(i).Format(time.DateOnly), ours.days[i], theirs.days[i], 1)
	}
	row("month", ours.sum(), theirs.sum(), m.days)
	_ = w.Flush() // into memory
	heading, _, _ := strings.Cut(b.String(), "\n")
	return groups(heading, "", "daemons", "crontab", "ticks of the daemons") + b.String()
}

// groups names the columns between the bars of a heading.
func groups(heading string, names ...string) string {
	parts := strings.Split(heading, "|")
	for i, name := range names {
		parts[i] = fmt.Sprintf("%-*s", len(parts[i]), "  "+name)
	}
	return strings.TrimRight(strings.Join(parts, "|"), " ") + "\n"
}

func (d *day) row(days int) string {
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%.4f\t", d.Requests, d.Units, d.Rejected, d.searches, d.kept, d.yield(days))
}
