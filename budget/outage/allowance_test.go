package outage_test

import (
	"context"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A refusal by the allowance names the floor, and whose it is.
func TestAllowanceNamesTheFloor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.host(t.TempDir()).ForJob("pull", budget.JobSays{Floor: 30})
	w.store.gone.Store(true)
	for _, c := range []struct {
		call budget.Call
		want string
	}{
		{budget.Call{Labels: driver.Labels{Job: "pull"}}, "the host's allowance of limit day has 20 left, and 30 must remain (the floor of job pull)"},
		{budget.Call{Floor: 25}, "the host's allowance of limit day has 20 left, and 25 must remain (the call's floor)"},
	} {
		c.call.Operation = "list"
		_, err := b.Charge(context.Background(), c.call)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.call, err, c.want)
		}
	}
	_, err := b.Charge(context.Background(), budget.Call{Operation: "search"})
	if err == nil || strings.Contains(err.Error(), "must remain") {
		t.Errorf("without a floor: %v", err)
	}
}

// A dry run is granted by the allowance without a line in the log: nothing was spent.
func TestAllowanceOfADryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.host(t.TempDir())
	w.store.gone.Store(true)
	r, err := b.Would(context.Background(), budget.Call{Operation: "list"}, 0)
	must.Do(t, err)
	check.Equal(t, r.Source, budget.SourceAllowance, "source")
	if strings.Contains(w.log.String(), "granted") {
		t.Errorf("the log says %s", w.log.String())
	}
	w.charged(b, "one", budget.SourceAllowance)
	if !strings.Contains(w.log.String(), "granted") {
		t.Errorf("the log says nothing of a charge: %s", w.log.String())
	}
}
