package config_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

const settable = `
[upstream.up]
[upstream.up.costs]
"search.list" = 100
[upstream.up.credential.key]
secret_env = "KEY"
[upstream.up.limit.day]
window = "24h"
limit = 1_000
[job.zebra]
budget = "up/key"
[job.ant]
budget = "up/key"
`

// A setting replaces or adds one value and leaves the order of the jobs.
func TestSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(settable), 0o600))
	var settings []config.Setting
	for _, text := range []string{`upstream.up.limit.day.limit=2_000`, `upstream.up.costs."search.list" = 50`, `upstream.up.limit.day.window=48h`, `job.middle.budget="up/key"`} {
		settings = append(settings, must.Get(config.ParseSetting(text))(t))
	}
	cfg := must.Get(config.ParseWith(path, settings))(t)
	must.Do(t, cfg.Err())
	spec := must.Get(cfg.Spec("up/key"))(t)
	check.Equal(t, spec.Limits[0].Limit, 2000, "limit")
	check.Equal(t, time.Duration(spec.Limits[0].Window.Length)*time.Microsecond, 48*time.Hour, "window")
	check.Equal(t, spec.Costs["search.list"].Units, 50, "price")
	names := ""
	for _, j := range cfg.Jobs {
		names += j.Key() + " "
	}
	check.Equal(t, names, "zebra ant middle ", "jobs")
}

func TestSettingsThatAreWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(settable), 0o600))
	for text, want := range map[string]string{
		"job.ant": `"job.ant": there is no '=': write KEY=VALUE as in a configuration, such as 'job.backfill.schedule="0 9 * * *"'`,
		"=3":      `"=3": "" is no key: write KEY=VALUE as in a configuration, such as 'job.backfill.schedule="0 9 * * *"'`,
	} {
		_, err := config.ParseSetting(text)
		check.Equal(t, err.Error(), want, text)
	}
	cfg := must.Get(config.ParseWith(path, []config.Setting{{Key: []string{"upstream", "up", "limit", "day", "limit"}, Value: "many"}}))(t)
	check.Equal(t, cfg.Err().Error(), path+" as changed: limit is a string: write a whole number from 0 to 1000000000000000", "a wrong value")
	_, err := config.ParseWith(path, []config.Setting{must.Get(config.ParseSetting("job.ant.budget.x=1"))(t)})
	check.Equal(t, err.Error(), "the configuration cannot be changed: job.ant.budget is no table", "below a value")
}
