package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/effort"
)

// jobWalk is a random walk on the jobs' data of two stores.
type jobWalk struct {
	*testing.T
	seed         uint64
	rng          *rand.Rand
	store, model Store
	names, keys  []string
}

// testJobWalk takes random steps on documents, values and histories, on the store and on
// the reference model, and checks that all answers are the same.
func testJobWalk(t *testing.T, world *world) {
	const steps = 500
	seed := effort.Seed(t)
	w := &jobWalk{
		T: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 2)), store: world.store, model: memstore.New(func() int64 { return world.now }),
		names: []string{"a", "@runs/up/key1", "never"}, keys: []string{"x", "y", "checkpoint/US", "z"},
	}
	counts := map[bool]int{}
	for step := range steps {
		swap := w.swap()
		want, wantErr := w.model.SwapJob(context.Background(), swap)
		got, gotErr := w.store.SwapJob(context.Background(), swap)
		if got != want || gotErr != nil || wantErr != nil {
			t.Fatalf("seed %d, step %d: swap %+v: %v, %v; want %v, %v", seed, step, swap, got, gotErr, want, wantErr)
		}
		counts[got]++
		w.same(step, swap)
	}
	t.Logf("seed %d: %d swaps, %d of another version", seed, counts[true], counts[false])
	if counts[true] == 0 || counts[false] == 0 {
		t.Errorf("seed %d: the walk shows less than it should", seed)
	}
}

func (w *jobWalk) bytes() []byte {
	return [][]byte{{}, []byte(fmt.Sprint(w.rng.Int64())), []byte("any bytes \x00\xff\n\r\n|")}[w.rng.IntN(3)]
}

// swap is a random swap of a job, mostly of its current version.
func (w *jobWalk) swap() driver.JobSwap {
	s := driver.JobSwap{Job: w.names[w.rng.IntN(2)], Values: map[string][]byte{}, Most: w.rng.IntN(12)}
	stands, err := w.model.Job(context.Background(), s.Job)
	if err != nil {
		w.Fatal(err)
	}
	if s.Version = stands.Version; w.rng.IntN(5) == 0 {
		s.Version = max(0, s.Version+w.rng.Int64N(3)-1)
	}
	if w.rng.IntN(2) == 0 {
		s.Text = w.bytes()
	}
	for range w.rng.IntN(3) {
		s.Values[w.keys[w.rng.IntN(len(w.keys))]] = [][]byte{nil, w.bytes()}[w.rng.IntN(2)]
	}
	for range w.rng.IntN(4) {
		s.Records = append(s.Records, driver.JobRecord{At: w.instant(), ID: fmt.Sprint(w.rng.IntN(25)), Text: w.bytes()})
	}
	if w.rng.IntN(3) == 0 {
		s.Forget = w.instant() - 15*second
	}
	s.Remove = w.rng.IntN(25) == 0
	return s
}

// instant is one of a few.
func (w *jobWalk) instant() int64 { return noon + w.rng.Int64N(20)*second }

// same checks that both stores contain the same.
func (w *jobWalk) same(step int, swap driver.JobSwap) {
	w.Helper()
	ctx := context.Background()
	differ := func(what string, got any, gotErr error, want any, wantErr error) {
		w.Helper()
		w.Fatalf("seed %d, step %d, after %+v: %s\n got %+v, %v\nwant %+v, %v", w.seed, step, swap, what, got, gotErr, want, wantErr)
	}
	want, wantErr := w.model.Jobs(ctx, w.names)
	got, gotErr := w.store.Jobs(ctx, w.names)
	ok := gotErr == nil && wantErr == nil && len(got) == len(want)
	for i := range want {
		ok = ok && got[i].Version == want[i].Version && sameBytes(got[i].Text, want[i].Text)
	}
	if !ok {
		differ("documents", got, gotErr, want, wantErr)
	}
	job, key := w.names[w.rng.IntN(len(w.names))], w.keys[w.rng.IntN(len(w.keys))]
	value, wantErr := w.model.JobValue(ctx, job, key)
	gotValue, gotErr := w.store.JobValue(ctx, job, key)
	if gotErr != nil || wantErr != nil || !sameBytes(gotValue, value) {
		differ("value "+key+" of "+job, gotValue, gotErr, value, wantErr)
	}
	query := driver.JobHistoryQuery{Job: job, Most: 1 + w.rng.IntN(15)}
	if w.rng.IntN(2) == 0 {
		query.Since = w.instant()
	}
	if w.rng.IntN(2) == 0 {
		query.Before = w.instant()
	}
	records, wantErr := w.model.JobHistory(ctx, query)
	gotRecords, gotErr := w.store.JobHistory(ctx, query)
	ok = gotErr == nil && wantErr == nil && len(gotRecords) == len(records)
	for i := range records {
		ok = ok && gotRecords[i].At == records[i].At && gotRecords[i].ID == records[i].ID && bytes.Equal(gotRecords[i].Text, records[i].Text)
	}
	if !ok {
		differ(fmt.Sprintf("history %+v", query), gotRecords, gotErr, records, wantErr)
	}
}

// sameBytes compares bytes and distinguishes nil from empty.
func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
