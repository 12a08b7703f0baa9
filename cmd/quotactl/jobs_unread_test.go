package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// While the store answers for jobs and not for their budgets, jobs shows the jobs and fails.
func TestJobsWhoseBudgetCannotBeRead(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := writeConfig(t, strings.Replace(serveConfig, "sqlite:quotactl.db", server.URL(0), 1)+`
[job.pull]
budget   = "shop/main"
schedule = "@hourly"
command  = ["true"]
`)
	jobs := func(code int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, said bytes.Buffer
		check.Equal(t, run(t.Context(), append([]string{"jobs", "-c", config}, args...), &out, &said, noEnv), code, "exit code")
		return out.String(), said.String()
	}
	_, said := jobs(exitDone)
	check.Equal(t, said, "", "standard error")
	admin := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer func() { check.NoError(t, admin.Close()) }()
	must.Do(t, admin.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	text, said := jobs(exitUnavailable)
	check.Contains(t, text, "pull ")
	check.Contains(t, said, "quotactl: read budget shop/main: ")
	text, _ = jobs(exitUnavailable, "--json")
	check.Contains(t, text, `"job": "pull"`)
	check.Contains(t, text, `"budgets": []`)
}
