package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/must"
)

func (w *world) swap(s driver.JobSwap, want bool) {
	w.t.Helper()
	got, err := w.store.SwapJob(context.Background(), s)
	must.Do(w.t, err)
	must.Equal(w.t, got, want, "swap", s)
}

func (w *world) job(job string) driver.JobDocument {
	w.t.Helper()
	found, err := w.store.Job(context.Background(), job)
	if err != nil {
		w.t.Fatalf("job %s: %v", job, err)
	}
	return found
}

func (w *world) wantDocument(job string, version int64, text string) {
	w.t.Helper()
	if found := w.job(job); found.Version != version || string(found.Text) != text || (version == 0) != (found.Text == nil) {
		w.t.Fatalf("job %s: version %d, %q (nil %v); want version %d, %q", job, found.Version, found.Text, found.Text == nil, version, text)
	}
}

func (w *world) wantValue(job, key, want string) {
	w.t.Helper()
	got, err := w.store.JobValue(context.Background(), job, key)
	if err != nil || string(got) != want || (want == "") != (got == nil) {
		w.t.Fatalf("value %s of %s: %q (nil %v), %v; want %q", key, job, got, got == nil, err, want)
	}
}

// testJobDocument: of several writers who read one version, the first replaces it;
// nothing of the others is stored.
func testJobDocument(t *testing.T, w *world) {
	w.wantDocument("a", 0, "")
	w.swap(driver.JobSwap{Job: "a", Text: []byte(`{"n":1}`), Values: map[string][]byte{"x": []byte("1")}}, true)
	w.swap(driver.JobSwap{Job: "a", Text: []byte(`{"n":2}`), Values: map[string][]byte{"x": []byte("2")},
		Records: []driver.JobRecord{{At: noon, ID: "r", Text: []byte("{}")}}}, false)
	w.wantDocument("a", 1, `{"n":1}`)
	w.wantValue("a", "x", "1")
	w.wantHistory(driver.JobHistoryQuery{Job: "a", Most: 10})
	w.swap(driver.JobSwap{Job: "a", Version: 1, Text: []byte(`{"n":3}`)}, true)
	w.swap(driver.JobSwap{Job: "a", Version: 1, Text: []byte(`{"n":4}`)}, false)
	w.swap(driver.JobSwap{Job: "a", Version: 3, Text: []byte(`{"n":4}`)}, false)
	w.wantDocument("a", 2, `{"n":3}`)
	w.wantDocument("b", 0, "")
	w.swap(driver.JobSwap{Job: "@what/several-jobs_share", Text: []byte("any bytes \x00\xff\n")}, true)
	w.wantDocument("@what/several-jobs_share", 1, "any bytes \x00\xff\n")
	found, err := w.store.Jobs(context.Background(), []string{"b", "a", "a"})
	if err != nil || len(found) != 3 || found[0].Text != nil || found[1].Version != 2 || string(found[2].Text) != `{"n":3}` {
		t.Fatalf("jobs b, a, a: %+v, %v", found, err)
	}
	if found, err := w.store.Jobs(context.Background(), nil); err != nil || len(found) != 0 {
		t.Fatalf("no jobs: %+v, %v", found, err)
	}
}

// testJobClock: the clocks come with the document, and advance.
func testJobClock(t *testing.T, w *world) {
	first := w.job("a")
	if first.Wall != noon || first.Now <= 0 {
		t.Fatalf("the clocks show %d and %d, want the wall clock at %d", first.Now, first.Wall, noon)
	}
	w.now += hour
	found, err := w.store.Jobs(context.Background(), []string{"a", "b"})
	if err != nil || found[0].Now != first.Now+hour || found[1].Now < found[0].Now || found[0].Wall != noon+hour {
		t.Fatalf("an hour later: %+v, %v; before: %+v", found, err, first)
	}
}

// testJobValues: values beside a document change with it or without it.
func testJobValues(t *testing.T, w *world) {
	w.wantValue("a", "x", "")
	w.swap(driver.JobSwap{Job: "a", Values: map[string][]byte{"x": []byte("1"), "a key/with:all~of.it_-": []byte("any bytes \x00\xff\n")}}, true)
	w.wantDocument("a", 0, "")
	w.swap(driver.JobSwap{Job: "a", Text: []byte("{}"), Values: map[string][]byte{"y": []byte("2")}}, true)
	w.swap(driver.JobSwap{Job: "a", Values: map[string][]byte{"x": []byte("no")}}, false)
	w.wantValue("a", "x", "1")
	w.swap(driver.JobSwap{Job: "a", Version: 1, Values: map[string][]byte{"x": nil, "never": nil, "y": []byte("3")}}, true)
	w.wantDocument("a", 1, "{}")
	w.wantValue("a", "x", "")
	w.wantValue("a", "y", "3")
	w.wantValue("a", "a key/with:all~of.it_-", "any bytes \x00\xff\n")
	w.wantValue("b", "y", "")
}

func (w *world) wantHistory(query driver.JobHistoryQuery, want ...string) {
	w.t.Helper()
	found, err := w.store.JobHistory(context.Background(), query)
	var got []string
	for _, r := range found {
		got = append(got, fmt.Sprintf("%d %s %s", (r.At-noon)/second, r.ID, r.Text))
	}
	if err != nil || !slices.Equal(got, want) {
		w.t.Fatalf("history %+v:\n got %q, %v\nwant %q", query, got, err, want)
	}
}

// testJobHistory: records are ordered by their instants, the newest first, each once,
// until they are too old or too many.
func testJobHistory(_ *testing.T, w *world) {
	record := func(at int64, id, text string) driver.JobRecord {
		return driver.JobRecord{At: noon + at*second, ID: id, Text: []byte(text)}
	}
	all := driver.JobHistoryQuery{Job: "a", Most: 100}
	w.wantHistory(all)
	w.swap(driver.JobSwap{Job: "a", Text: []byte("{}"), Records: []driver.JobRecord{record(3, "c", "{3}"), record(1, "a", "{1}")}}, true)
	w.swap(driver.JobSwap{Job: "a", Version: 1, Records: []driver.JobRecord{record(2, "b", "two\nlines|\x00\xff")}}, true)
	w.swap(driver.JobSwap{Job: "a", Version: 1, Records: []driver.JobRecord{record(2, "bb", "")}}, true)
	w.wantHistory(all, "3 c {3}", "2 bb ", "2 b two\nlines|\x00\xff", "1 a {1}")
	w.wantHistory(driver.JobHistoryQuery{Job: "a", Most: 2}, "3 c {3}", "2 bb ")
	w.wantHistory(driver.JobHistoryQuery{Job: "a", Since: noon + 2*second, Before: noon + 3*second, Most: 9}, "2 bb ", "2 b two\nlines|\x00\xff")
	w.wantHistory(driver.JobHistoryQuery{Job: "b", Most: 9})
	w.swap(driver.JobSwap{Job: "a", Version: 1, Records: []driver.JobRecord{record(4, "b", "{4}")}}, true)
	w.wantHistory(all, "4 b {4}", "3 c {3}", "2 bb ", "1 a {1}")
	w.swap(driver.JobSwap{Job: "a", Version: 1, Forget: noon + 4*second}, true) // nothing is added
	w.wantHistory(all, "4 b {4}", "3 c {3}", "2 bb ", "1 a {1}")
	w.swap(driver.JobSwap{Job: "a", Version: 1, Records: []driver.JobRecord{record(5, "e", "{5}")}, Forget: noon + 2*second}, true)
	w.wantHistory(all, "5 e {5}", "4 b {4}", "3 c {3}", "2 bb ")
	w.swap(driver.JobSwap{Job: "a", Version: 1, Records: []driver.JobRecord{record(6, "f", "{6}")}, Most: 3}, true)
	w.wantHistory(all, "6 f {6}", "5 e {5}", "4 b {4}")
}

// testJobRemove: one swap of the current version removes everything about a job. Other
// jobs stay, and a job of the same name starts afresh.
func testJobRemove(_ *testing.T, w *world) {
	keep := func(job, text string) {
		w.swap(driver.JobSwap{Job: job, Text: []byte(text), Values: map[string][]byte{"x": []byte(text)},
			Records: []driver.JobRecord{{At: noon, ID: "r", Text: []byte(text)}}}, true)
	}
	all := driver.JobHistoryQuery{Job: "a", Most: 100}
	w.swap(driver.JobSwap{Job: "a", Remove: true}, true) // there is nothing to remove
	w.wantDocument("a", 0, "")
	keep("a", "{1}")
	keep("b", "{2}")
	w.swap(driver.JobSwap{Job: "a", Remove: true}, false)
	w.swap(driver.JobSwap{Job: "a", Version: 2, Remove: true}, false)
	w.wantDocument("a", 1, "{1}")
	w.wantHistory(all, "0 r {1}")
	w.swap(driver.JobSwap{Job: "a", Version: 1, Remove: true, Text: []byte("no"), Values: map[string][]byte{"x": []byte("no")},
		Records: []driver.JobRecord{{At: noon, ID: "no"}}}, true)
	w.swap(driver.JobSwap{Job: "a", Version: 1, Remove: true}, true) // the answer was lost
	w.wantDocument("a", 0, "")
	w.wantValue("a", "x", "")
	w.wantHistory(all)
	w.wantDocument("b", 1, "{2}")
	w.wantValue("b", "x", "{2}")
	w.wantHistory(driver.JobHistoryQuery{Job: "b", Most: 9}, "0 r {2}")
	keep("a", "{3}")
	w.wantDocument("a", 1, "{3}")
	w.wantValue("a", "x", "{3}")
	w.wantHistory(all, "0 r {3}")
}

// testJobTogether: many writers increment a document, and no increment is lost.
func testJobTogether(t *testing.T, w *world) {
	const counters, each = 8, 20
	var counting sync.WaitGroup
	for c := range counters {
		counting.Go(func() {
			for i := 0; i < each; {
				found, err := w.store.Job(context.Background(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				id := fmt.Sprintf("%d/%d", c, i)
				swapped, err := w.store.SwapJob(context.Background(), driver.JobSwap{
					Job: "a", Version: found.Version, Text: append(found.Text, '.'),
					Records: []driver.JobRecord{{At: noon, ID: id, Text: []byte(id)}},
				})
				if err != nil {
					t.Error(err)
					return
				}
				if swapped {
					i++
				}
			}
		})
	}
	counting.Wait()
	found := w.job("a")
	records, err := w.store.JobHistory(context.Background(), driver.JobHistoryQuery{Job: "a", Most: counters*each + 1})
	if err != nil || found.Version != counters*each || len(found.Text) != counters*each || len(records) != counters*each {
		t.Fatalf("%d times counted: version %d, %d long, %d records, %v", counters*each, found.Version, len(found.Text), len(records), err)
	}
}
