package sqlitestore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/must"
)

func (b *bench) swap(swap driver.JobSwap) {
	b.t.Helper()
	if swapped, err := b.store.SwapJob(context.Background(), swap); err != nil || !swapped {
		b.t.Fatalf("swap %+v: %v, %v", swap, swapped, err)
	}
}

// history is the ids of a job's records, the newest first.
func (b *bench) history(job string) (ids []string) {
	b.t.Helper()
	found := must.Get(b.store.JobHistory(context.Background(), driver.JobHistoryQuery{Job: job, Most: 1000}))(b.t)
	for _, r := range found {
		ids = append(ids, r.ID)
	}
	return ids
}

// records are so many, one a second from noon on.
func records(n int) (list []driver.JobRecord) {
	for i := range n {
		list = append(list, driver.JobRecord{At: noon + int64(i)*second, ID: fmt.Sprint("r", i), Text: []byte("{}")})
	}
	return list
}

// What is empty is there.
func TestEmptyTexts(t *testing.T) {
	b := newBench(t)
	b.swap(driver.JobSwap{Job: "j", Text: []byte{}, Values: map[string][]byte{"x": {}}, Records: []driver.JobRecord{{At: noon, ID: "r"}}})
	found, err := b.store.Job(t.Context(), "j")
	if err != nil || found.Version != 1 || found.Text == nil || len(found.Text) != 0 {
		t.Errorf("an empty document: %+v (nil %v), %v", found, found.Text == nil, err)
	}
	value, err := b.store.JobValue(t.Context(), "j", "x")
	if err != nil || value == nil || len(value) != 0 {
		t.Errorf("an empty value: %q (nil %v), %v", value, value == nil, err)
	}
	if got := b.history("j"); len(got) != 1 {
		t.Errorf("a record without a text: %v", got)
	}
}

// Many documents are read at once, each in the place of its name, also of names
// that stand there twice or have none.
func TestManyJobs(t *testing.T) {
	b := newBench(t)
	var names []string
	for i := range 1000 {
		name := fmt.Sprint("job-", i*7919%1000)
		if names = append(names, name); i%3 != 0 {
			b.swap(driver.JobSwap{Job: name, Text: []byte(name)})
		}
	}
	names = append(names, "@shared", names[1], "no such 'job' in\"deed")
	found := must.Get(b.store.Jobs(t.Context(), names))(t)
	must.Equal(t, len(found), len(names))
	for i, document := range found {
		want := names[i]
		if i < 1000 && i%3 == 0 || i == 1000 || i == 1002 {
			want = ""
		}
		if string(document.Text) != want || (document.Version == 1) != (want != "") || document.Now != b.now {
			t.Fatalf("the document of %s: %+v, want %q", names[i], document, want)
		}
	}
}

// Of several processes that read one version the first is the only one, whatever
// the others bring along.
func TestSwapOfOtherProcesses(t *testing.T) {
	b := newBench(t)
	other := &bench{t: t, path: b.path, now: noon}
	other.open()
	defer other.close()
	b.swap(driver.JobSwap{Job: "j", Text: []byte("mine"), Records: records(1)})
	late := driver.JobSwap{Job: "j", Text: []byte("theirs"), Values: map[string][]byte{"x": []byte("1")}, Records: records(3), Most: 1}
	if swapped, err := other.store.SwapJob(t.Context(), late); err != nil || swapped {
		t.Fatalf("%v, %v, want the other to be late", swapped, err)
	}
	if got := other.history("j"); len(got) != 1 {
		t.Fatalf("records %v, want the first one's", got)
	}
	late.Version = 1
	other.swap(late)
	found, err := b.store.Job(t.Context(), "j")
	if err != nil || found.Version != 2 || string(found.Text) != "theirs" {
		t.Fatalf("%+v, %v", found, err)
	}
	if got := b.history("j"); len(got) != 1 || got[0] != "r2" {
		t.Fatalf("records %v, want the newest", got)
	}
}

// I7: a long history is forgotten in steps, between which others get in; the swap
// stands from the first on.
func TestHistoryIsForgottenInSteps(t *testing.T) {
	for what, swap := range map[string]driver.JobSwap{
		"by age":    {Forget: noon + 20*second},
		"by number": {Most: 1},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t, rolling(10, hour))
			b.swap(driver.JobSwap{Job: "j", Records: records(20)})
			b.swap(driver.JobSwap{Job: "other", Records: records(20)})
			other := &bench{t: t, path: b.path, now: noon, limits: b.limits}
			other.open()
			defer other.close()
			sqlitestore.SetSteps(b.store, 100, 3)
			pauses := 0
			sqlitestore.SetPaused(b.store, func() {
				pauses++
				if got, want := len(other.history("j")), 21-3*pauses; got != want {
					t.Errorf("%d records after %d steps, want %d", got, pauses, want)
				}
				other.granted(item(fmt.Sprint(pauses), 1))
			})
			swap.Job, swap.Text = "j", []byte("{}")
			swap.Records = []driver.JobRecord{{At: noon + 20*second, ID: "new", Text: []byte("{}")}}
			b.swap(swap)
			if got := b.history("j"); len(got) != 1 || got[0] != "new" || pauses != 6 {
				t.Errorf("left %v after %d pauses, want the new one after 6", got, pauses)
			}
			if got := b.history("other"); len(got) != 20 {
				t.Errorf("another job has %d records left, want 20", len(got))
			}
		})
	}
}

// A swap for whose old records there is no time has happened, and they go with the
// next records.
func TestHistoryOutOfTime(t *testing.T) {
	b := newBench(t)
	b.swap(driver.JobSwap{Job: "j", Records: records(20)})
	sqlitestore.SetSteps(b.store, 100, 3)
	ctx, cancel := context.WithCancel(t.Context())
	sqlitestore.SetPaused(b.store, cancel)
	swap := driver.JobSwap{Job: "j", Text: []byte("{}"), Records: []driver.JobRecord{{At: noon + hour, ID: "new"}}, Most: 2}
	if swapped, err := b.store.SwapJob(ctx, swap); err != nil || !swapped {
		t.Fatalf("%v, %v, want what was swapped to stand", swapped, err)
	}
	must.Equal(t, len(b.history("j")), 18, "records of 21")
	sqlitestore.SetPaused(b.store, nil)
	swap.Version, swap.Text = 1, nil
	b.swap(swap)
	if got := b.history("j"); len(got) != 2 || got[0] != "new" || got[1] != "r19" {
		t.Fatalf("left %v, want the newest two", got)
	}
}

// A swap that waits for another process gives up with its context, and changes
// nothing.
func TestSwapGivesUp(t *testing.T) {
	b := newBench(t)
	release := hold(t, b.path+".lock")
	sqlitestore.EndSlice(b.store)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	swapped, err := b.store.SwapJob(ctx, driver.JobSwap{Job: "j", Text: []byte("{}")})
	release()
	if err == nil || swapped {
		t.Fatalf("%v, %v, want an error", swapped, err)
	}
	b.swap(driver.JobSwap{Job: "j", Text: []byte("{}")})
}
