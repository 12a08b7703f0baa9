package open_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// The jobs of a store that is out of reach at the start are there once it is.
func TestJobsOfAStoreThatComesLater(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "q.db")
	held := must.Get(os.OpenFile(file+".lock", os.O_RDWR|os.O_CREATE, 0o600))(t)
	must.Do(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
	config := must.Get(config.Load(write(t, fmt.Sprintf("[store]\nurl = \"sqlite:%s\"\ntimeout = \"250ms\"\n", file)+upstream)))(t)
	store := must.Get(open.Host(t.Context(), config, config.Store.URL, slog.New(slog.DiscardHandler)))(t)
	defer func() { check.NoError(t, store.Close()) }()
	swap := driver.JobSwap{
		Job: "j", Text: []byte("{}"), Values: map[string][]byte{"x": []byte("1")}, Records: []driver.JobRecord{{At: 1, ID: "r", Text: []byte("{}")}},
	}
	for what, call := range jobCalls(t.Context(), store, swap) {
		check.Is(t, call(), budget.ErrUnavailable, what, "while it is out of reach")
	}
	must.Do(t, held.Close())
	for end := time.Now().Add(5 * time.Minute); ; { // its timeout is short
		swapped, err := store.SwapJob(t.Context(), swap)
		if swapped {
			break
		}
		if err == nil || time.Now().After(end) {
			t.Fatalf("once it is there: %v, %v", swapped, err)
		}
	}
	for what, call := range jobCalls(t.Context(), store, driver.JobSwap{Job: "other"}) {
		err := call()
		for end := time.Now().Add(5 * time.Minute); errors.Is(err, budget.ErrUnavailable) && time.Now().Before(end); {
			err = call()
		}
		check.NoError(t, err, what, "once it is there")
	}
}

// The first call after a store could not be opened gets that error, without another try.
func TestFirstCallIsToldOfTheOpening(t *testing.T) {
	t.Parallel()
	err := budget.ErrUnavailable
	for timeout := time.Second; errors.Is(err, budget.ErrUnavailable) && timeout < time.Minute; timeout *= 2 { // for a busy machine
		err = secondCall(t, timeout)
	}
	check.NoError(t, err, "the second call")
}

// secondCall is what the second call gets after a store could not be opened.
func secondCall(t *testing.T, timeout time.Duration) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "q.db")
	held := must.Get(os.OpenFile(file+".lock", os.O_RDWR|os.O_CREATE, 0o600))(t)
	must.Do(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
	config := must.Get(config.Load(write(t, fmt.Sprintf("[store]\nurl = \"sqlite:%s\"\ntimeout = %q\n", file, timeout)+upstream)))(t)
	store := must.Get(open.Host(t.Context(), config, config.Store.URL, slog.New(slog.DiscardHandler)))(t)
	defer func() { _ = store.Close() }()
	must.Do(t, held.Close())
	spec := must.Get(config.Spec("youtube/key1"))(t)
	b := must.Get(budget.New(store, spec))(t)
	_, err := b.Charge(t.Context(), budget.Call{Operation: "search.list"})
	told := &budget.RefusedError{}
	if !errors.As(err, &told) || !errors.Is(err, budget.ErrUnavailable) || !told.NotCharged {
		t.Errorf("the first call: %v, want what the opening said, and nothing charged", err)
	}
	return check.Err(store.Job(t.Context(), "j"))
}

// jobCalls are the calls of a JobStore, which want what the swap leaves.
func jobCalls(ctx context.Context, store driver.JobStore, swap driver.JobSwap) map[string]func() error {
	want := func(err error, right bool) error {
		if err == nil && !right {
			return errors.New("not what was swapped in")
		}
		return err
	}
	return map[string]func() error{
		"Job": func() error {
			found, err := store.Job(ctx, "j")
			return want(err, found.Version == 1 && string(found.Text) == "{}")
		},
		"Jobs": func() error {
			found, err := store.Jobs(ctx, []string{"none", "j"})
			return want(err, len(found) == 2 && found[1].Version == 1)
		},
		"SwapJob": func() error {
			swapped, err := store.SwapJob(ctx, swap)
			return want(err, swapped)
		},
		"JobValue": func() error {
			value, err := store.JobValue(ctx, "j", "x")
			return want(err, string(value) == "1")
		},
		"JobHistory": func() error {
			found, err := store.JobHistory(ctx, driver.JobHistoryQuery{Job: "j", Most: 9})
			return want(err, len(found) == 1 && found[0].ID == "r")
		},
	}
}
