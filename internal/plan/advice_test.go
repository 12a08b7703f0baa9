package plan_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/plan"
	"github.com/quotactl/quotactl/jobs"
)

// advised is a configuration and the change that is advised for the hours after midnight; empty: none is.
type advised struct {
	name, limit string
	jobs        []string // the lines of each job's table, after its name
	hours       int
	want        string
}

func (a *advised) text() string {
	text := "[upstream.up]\n[upstream.up.costs]\nop = 1\npage = 10\n[upstream.up.credential.key]\nsecret_env = \"KEY\"\n[upstream.up.limit.all]\n" + a.limit + "\n"
	for _, lines := range a.jobs {
		name, rest, _ := strings.Cut(lines, ": ")
		text += fmt.Sprintf("[job.%s]\nbudget = \"up/key\"\n%s\n", name, strings.ReplaceAll(rest, "; ", "\n"))
		if !strings.Contains(rest, "fetch") {
			text += "command = [\"true\"]\n"
		}
	}
	return text
}

// The advice is what helps: another hour, a longer stagger, a share, fewer pages, or nothing.
func TestAdvice(t *testing.T) {
	for _, a := range []advised{
		{"hour", "window = \"6h\"\nlimit = 100", []string{`big: schedule = "0 1 * * *"; needs = { op = 80 }`, `small: schedule = "0 2 * * *"; needs = { op = 40 }`}, 24, `job.small.schedule="0 8 * * *"`},
		{"stagger", "window = \"2m\"\nlimit = 10", []string{`some: schedule = "5,35 1 * * *"; needs = { op = 10 }; regions = ["US", "GB", "DE"]; stagger = "3m"`}, 6, `job.some.stagger="6m"`},
		{"share", "calendar = \"day\"\nlimit = 100", []string{`hog: schedule = "5,35 1 * * *"; needs = { op = 45 }`, `small: schedule = "0 2-5 * * *"; needs = { op = 5 }`}, 6, `upstream.up.share.small={ jobs = ["small"], units = 20, limits = ["all"] }`},
		{"not after the plan", "calendar = \"day\"\nlimit = 100", []string{`hog: schedule = "0 1 * * *"; needs = { op = 45 }; regions = ["US", "GB"]`, `small: schedule = "0 2-5 * * *"; needs = { op = 5 }`}, 6, `upstream.up.share.small={ jobs = ["small"], units = 20, limits = ["all"] }`},
		{"pages", "calendar = \"day\"\nlimit = 100", []string{`first: schedule = "5,35 1 * * *"; needs = { op = 20 }`, `pages: schedule = "5,35 2 * * *"; regions = ["US"]; [job.pages.fetch]; operation = "page"; url = "https://up.test/{region}"; max_pages = 6; next_page = { param = "p", from = "n" }; output = "{region}-{tick}"`}, 6, `job.pages.fetch.max_pages=3`},
		{"none", "calendar = \"day\"\nlimit = 100", []string{`one: schedule = "0 1 * * *"; needs = { op = 80 }`, `two: schedule = "0 2 * * *"; needs = { op = 80 }`}, 20, ``},
	} {
		t.Run(a.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "costs.toml")
			must.Do(t, os.WriteFile(path, []byte(a.text()), 0o600))
			synctest.Test(t, func(t *testing.T) { a.try(t, path) })
		})
	}
}

func (a *advised) try(t *testing.T, path string) {
	ctx, store := t.Context(), memstore.New(nil)
	open := func(sets ...string) ([]*budget.Budget, []*jobs.Job, error) {
		var settings []config.Setting
		for _, set := range sets {
			settings = append(settings, must.Get(config.ParseSetting(set))(t))
		}
		cfg, err := config.ParseWith(path, settings)
		if err != nil {
			return nil, nil, err
		}
		list := jobs.Load(cfg)
		if err := cfg.Err(); err != nil {
			return nil, nil, err
		}
		return []*budget.Budget{must.Get(budget.New(store, must.Get(cfg.Spec("up/key"))(t)))(t)}, list, nil
	}
	budgets, list, err := open()
	must.Do(t, err)
	q := must.Get(plan.Read(ctx, store, budgets, list, time.Now(), plan.Reading{}))(t)
	q.Until = q.From.Add(time.Duration(a.hours) * time.Hour)
	lived := must.Get(q.Plan(ctx))(t)
	check.Equal(t, lived.Short(), true, "short without a change")
	change := func(set string) (*plan.Question, error) {
		budgets, list, err := open(set)
		if err != nil {
			return nil, err
		}
		return q.Other(ctx, store, budgets, list)
	}
	set := ""
	if advice := must.Get(q.Advise(ctx, lived, change))(t); advice != nil {
		set = advice.Set
		other := must.Get(must.Get(change(set))(t).Plan(ctx))(t)
		check.Equal(t, advice.Complete, other.Complete(), "complete with the advice")
		if other.Complete() <= lived.Complete() || len(other.Passes) < len(lived.Passes) {
			t.Errorf("%s: %d of %d passes are complete, without it %d of %d", set, other.Complete(), len(other.Passes), lived.Complete(), len(lived.Passes))
		}
	}
	check.Equal(t, set, a.want, "advice")

	refusing := func(string) (*plan.Question, error) { return nil, errors.New("the configuration is wrong") }
	if advice := must.Get(q.Advise(ctx, lived, refusing))(t); advice != nil {
		t.Errorf("advised, though the configuration does not allow it: %+v", advice)
	}
}
