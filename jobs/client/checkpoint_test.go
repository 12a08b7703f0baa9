package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/checkpoint"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/client"
)

// A region's listing is resumed where the run before was cut.
func ExampleCheckpoint() {
	ctx := context.Background()
	c := &client.Checkpoint{Store: memstore.New(clock), Job: "orders", Region: "EU", For: 72 * time.Hour}
	fetch := func(most int) error { // most pages, then the units are gone
		token, err := c.Load(ctx)
		if err != nil {
			return err
		}
		page := 1
		if token != nil {
			if _, err := fmt.Sscanf(string(token), "page %d", &page); err != nil {
				return err
			}
		}
		for ; page <= 3; page++ {
			if most--; most < 0 {
				return budget.ErrExhausted
			}
			fmt.Println("fetched and kept page", page)
			if err := c.Save(ctx, fmt.Appendf(nil, "page %d", page+1)); err != nil {
				return err
			}
		}
		return c.Clear(ctx)
	}
	fmt.Println(fetch(2))
	fmt.Println(fetch(9))
	// Output:
	// fetched and kept page 1
	// fetched and kept page 2
	// exhausted
	// fetched and kept page 3
	// <nil>
}

func TestCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client.Checkpoint{Store: memstore.New(clock), Job: "orders", For: time.Hour}
		holds := func(want string) {
			t.Helper()
			if got, err := c.Load(t.Context()); err != nil || string(got) != want || (got == nil) != (want == "") {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		}
		holds("")
		for _, data := range []string{"one", "two \x00\xff", strings.Repeat("x", checkpoint.Max)} {
			must.Do(t, c.Save(t.Context(), []byte(data)))
			holds(data)
		}
		<-time.After(time.Hour - time.Microsecond)
		holds(strings.Repeat("x", checkpoint.Max))
		<-time.After(time.Microsecond)
		holds("")
		must.Do(t, c.Save(t.Context(), []byte("three")))
		for range 2 {
			must.Do(t, c.Clear(t.Context()))
			holds("")
		}
	})
}

func TestCheckpointErrors(t *testing.T) {
	store := memstore.New(clock)
	for name, test := range map[string]struct {
		client.Checkpoint
		data string
	}{
		"empty":      {client.Checkpoint{Job: "orders", For: time.Hour}, ""},
		"too large":  {client.Checkpoint{Job: "orders", For: time.Hour}, strings.Repeat("x", checkpoint.Max+1)},
		"no span":    {client.Checkpoint{Job: "orders"}, "x"},
		"no job":     {client.Checkpoint{For: time.Hour}, "x"},
		"shared":     {client.Checkpoint{Job: "@runs/a", For: time.Hour}, "x"},
		"bad region": {client.Checkpoint{Job: "orders", Region: "a/b", For: time.Hour}, "x"},
		"bad fence":  {client.Checkpoint{Job: "orders", Fence: -1, For: time.Hour}, "x"},
	} {
		test.Store = store
		check.Is(t, test.Save(t.Context(), []byte(test.data)), budget.ErrInvalid, name)
	}
	zombie := client.Checkpoint{Store: store, Job: "orders", Fence: 7, For: time.Hour}
	if err := zombie.Save(t.Context(), []byte("x")); !errors.Is(err, budget.ErrFenced) || !strings.Contains(err.Error(), "save the checkpoint of job orders") {
		t.Errorf("without a pass: %v", err)
	}
	away := client.Checkpoint{Store: noJobs{}, Job: "orders", For: time.Hour}
	for _, err := range []error{away.Save(t.Context(), []byte("x")), away.Clear(t.Context())} {
		check.Is(t, err, budget.ErrUnavailable, "without a store")
	}
	check.Is(t, check.Err(away.Load(t.Context())), budget.ErrUnavailable, "without a store")
}

// noJobs is a store that does not answer.
type noJobs struct{ driver.JobStore }

func (noJobs) Job(context.Context, string) (driver.JobDocument, error) {
	return driver.JobDocument{}, budget.ErrUnavailable
}

func (noJobs) JobValue(context.Context, string, string) ([]byte, error) {
	return nil, budget.ErrUnavailable
}

// A pass that is declared dead between the look at it and the change is found then.
func TestACheckpointIsSwapped(t *testing.T) {
	store := &overtaken{JobStore: memstore.New(clock)}
	document := func(text string) {
		t.Helper()
		found := must.Get(store.Job(t.Context(), "orders"))(t)
		if ok, err := store.JobStore.SwapJob(t.Context(), driver.JobSwap{Job: "orders", Version: found.Version, Text: []byte(text)}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	document(`{"active":[{"fence":7,"holder":"x"},{"fence":8}],"until":5}`)
	c := client.Checkpoint{Store: store, Job: "orders", For: time.Hour, Fence: 7}
	store.meanwhile = func() { document(`{"active":[{"fence":7},{"fence":8}],"until":6}`) } // a heartbeat
	must.Do(t, c.Save(t.Context(), []byte("x")))
	store.meanwhile = func() { document(`{"active":[{"fence":8}]}`) }
	check.Is(t, c.Save(t.Context(), []byte("y")), budget.ErrFenced)
	if got, err := c.Load(t.Context()); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	document(`{"active":7}`)
	if err := c.Save(t.Context(), []byte("z")); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("%v", err)
	}
}

// overtaken has something happen before the next change.
type overtaken struct {
	driver.JobStore
	meanwhile func()
}

func (o *overtaken) SwapJob(ctx context.Context, swap driver.JobSwap) (bool, error) {
	if do := o.meanwhile; do != nil {
		o.meanwhile = nil
		do()
	}
	return o.JobStore.SwapJob(ctx, swap)
}

func clock() int64 { return time.Now().UnixMicro() }
