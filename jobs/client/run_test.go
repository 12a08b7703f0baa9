package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/client"
)

const checkpointConfig = `
[store]
url = "sqlite:q.db"
[upstream.shop.costs]
"get" = 1
[upstream.shop.limit.daily]
limit  = 100
window = "24h"
[upstream.shop.credential.main]
[job.pull]
checkpoint = "3h"
[job.push]
`

// A program finds its checkpoint by the environment: by hand, and within a run as
// long as its pass stands.
func TestOpenCheckpoint(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "costs.toml"), []byte(checkpointConfig), 0o600))
	t.Chdir(dir)
	for _, name := range []string{"QUOTACTL_CONFIG", "QUOTACTL_STORE", "QUOTACTL_JOB", "QUOTACTL_REGION", "QUOTACTL_RUN", "QUOTACTL_FENCE"} {
		t.Setenv(name, "")
	}
	opened := func() *client.Checkpoint {
		t.Helper()
		c := must.Get(client.OpenCheckpoint(t.Context()))(t)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	for job, says := range map[string]string{"": "no QUOTACTL_JOB", "push": `write checkpoint = "72h" in [job.push]`, "none": "[job.none]"} {
		t.Setenv("QUOTACTL_JOB", job)
		if _, err := client.OpenCheckpoint(t.Context()); !errors.Is(err, budget.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("job %q: %v, want %q", job, err, says)
		}
	}
	t.Setenv("QUOTACTL_JOB", "pull")
	t.Setenv("QUOTACTL_REGION", "EU")
	byHand := opened()
	if byHand.Job != "pull" || byHand.Region != "EU" || byHand.Fence != 0 || byHand.For != 3*time.Hour {
		t.Errorf("%+v", byHand)
	}
	must.Do(t, byHand.Save(t.Context(), []byte("page 2")))
	store := must.Get(open.Store(t.Context(), "sqlite:q.db", config.Store{}))(t)
	defer func() { _ = store.Close() }()
	active := func(version int64, text string) {
		t.Helper()
		if ok, err := store.SwapJob(t.Context(), driver.JobSwap{Job: "pull", Version: version, Text: []byte(text)}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	active(0, `{"active":[{"fence":7}]}`)
	t.Setenv("QUOTACTL_CONFIG", filepath.Join(dir, "costs.toml"))
	t.Setenv("QUOTACTL_FENCE", "7")
	t.Chdir(t.TempDir())
	ours := opened()
	if data, err := ours.Load(t.Context()); err != nil || string(data) != "page 2" || ours.Fence != 7 {
		t.Errorf("%q, %v, fence %d", data, err, ours.Fence)
	}
	check.Is(t, byHand.Save(t.Context(), []byte("x")), budget.ErrConflict, "by hand, under a pass")
	check.NoError(t, ours.Save(t.Context(), []byte("page 3")))
	active(1, `{"active":[{"fence":8}]}`)
	check.Is(t, ours.Save(t.Context(), []byte("page 4")), budget.ErrFenced, "declared dead")
	if data, err := ours.Load(t.Context()); err != nil || string(data) != "page 3" {
		t.Errorf("%q, %v", data, err)
	}
	t.Setenv("QUOTACTL_STORE", "sqlite:"+filepath.Join(dir, "other.db"))
	if data, err := opened().Load(t.Context()); err != nil || data != nil {
		t.Errorf("in another store: %q, %v", data, err)
	}
	t.Setenv("QUOTACTL_STORE", "redis://127.0.0.1:1") // out of reach at the start is no error
	check.Is(t, check.Err(opened().Load(t.Context())), budget.ErrUnavailable, "out of reach")
}

func TestRun(t *testing.T) {
	for name, value := range map[string]string{"QUOTACTL_JOB": "pull", "QUOTACTL_REGION": "EU", "QUOTACTL_RUN": "pull/1/EU", "QUOTACTL_FENCE": "7"} {
		t.Setenv(name, value)
	}
	labels, fence, err := client.Run()
	if err != nil || fence != 7 || labels != (budget.Labels{Job: "pull", Region: "EU", Run: "pull/1/EU"}) {
		t.Errorf("%+v, %d, %v", labels, fence, err)
	}
	t.Setenv("QUOTACTL_FENCE", "")
	if _, fence, err = client.Run(); fence != 0 || err != nil {
		t.Errorf("%d, %v", fence, err)
	}
	t.Setenv("QUOTACTL_FENCE", "seven")
	if _, _, err = client.Run(); !errors.Is(err, budget.ErrInvalid) {
		t.Errorf("%v", err)
	}
	check.Is(t, check.Err(client.OpenCheckpoint(t.Context())), budget.ErrInvalid)
}
