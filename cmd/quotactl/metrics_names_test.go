package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/jobs"
)

var (
	metricName = regexp.MustCompile(`quotactl_[a-z_]+`)
	labelUse   = regexp.MustCompile(`(quotactl_[a-z_]+)\{([^}]*)\}`)
	labelName  = regexp.MustCompile(`([a-z]+)\s*(?:=~|!~|!=|=)`)
	byLabels   = regexp.MustCompile(`by \(([^)]*)\)`)
)

// The dashboard and the alerts ask for metrics and labels that there are, and the
// page on metrics tells all of them.
func TestMetricNames(t *testing.T) {
	w := watch(t, nil)
	for _, err := range []error{w.charge("get", 97), w.charge("get", 1)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.truth()
	job := &jobs.Job{Name: "pull"}
	w.m.TickStarted(job, 0)
	w.m.RunEnded(job, "US", jobs.Failed)
	w.m.PassEnded(job, jobs.Failed)
	w.m.ResponseUnread(job, budgethttp.Unread{Operation: "get", What: budgethttp.UnreadActual})
	w.succeeded()
	_, text := w.get("/metrics")
	labels := map[string][]string{} // by metric
	for line := range strings.Lines(grep(text, "quotactl_")) {
		name := metricName.FindString(line)
		labels[name] = []string{"instance", "job"} // what a scrape adds
		if inside := labelUse.FindStringSubmatch(line); inside != nil {
			for _, l := range labelName.FindAllStringSubmatch(inside[2], -1) {
				labels[name] = append(labels[name], l[1])
			}
		}
	}
	if len(labels) < 15 {
		t.Fatalf("only %d metrics: %v", len(labels), labels)
	}
	asked := map[string]bool{}
	for _, expr := range append(dashboardExprs(t), alertExprs(t)...) {
		known := []string{}
		for _, name := range metricName.FindAllString(expr, -1) {
			asked[name] = true
			if labels[name] == nil {
				t.Errorf("%s: there is no metric %s", expr, name)
			}
			known = append(known, labels[name]...)
		}
		used := byLabels.FindStringSubmatch(expr)
		var names []string
		if used != nil {
			names = strings.Split(used[1], ", ")
		}
		for _, inside := range labelUse.FindAllStringSubmatch(expr, -1) {
			for _, l := range labelName.FindAllStringSubmatch(inside[2], -1) {
				names = append(names, l[1])
			}
		}
		for _, name := range names {
			if !slices.Contains(known, name) {
				t.Errorf("%s: there is no label %s", expr, name)
			}
		}
	}
	if len(asked) < 10 {
		t.Errorf("dashboard and alerts ask for %d metrics only: %v", len(asked), asked)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range labels {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if !strings.Contains(string(page), "`"+base+"`") {
			t.Errorf("docs/metrics.md does not tell of %s", base)
		}
	}
}

// dashboardExprs are the queries of the dashboard's panels.
func dashboardExprs(t *testing.T) (list []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "grafana", "quotactl.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		if panel.Title == "" || len(panel.Targets) == 0 {
			t.Errorf("a panel shows nothing: %+v", panel)
		}
		for _, target := range panel.Targets {
			list = append(list, target.Expr)
		}
	}
	return list
}

// alertExprs are the conditions of the alerts.
func alertExprs(t *testing.T) (list []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "prometheus", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if expr, ok := strings.CutPrefix(strings.TrimSpace(line), "expr: "); ok {
			list = append(list, expr)
		}
	}
	if n := strings.Count(string(text), "- alert:"); n != len(list) {
		t.Errorf("%d alerts have %d conditions", n, len(list))
	}
	return list
}
