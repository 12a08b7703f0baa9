package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// jobNames are those of so many jobs.
func jobNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("job", i)
	}
	return names
}

// A thousand documents are read in a few script runs.
func TestManyJobsAreReadTogether(t *testing.T) {
	t.Parallel()
	store, p, _ := behind(t, patient)
	names := jobNames(1001)
	for i := 0; i < len(names); i += 100 {
		swapped(t, store, driver.JobSwap{Job: names[i], Text: []byte(names[i])})
	}
	before := p.scripts.Load()
	found := must.Get(store.Jobs(t.Context(), names))(t)
	must.Equal(t, len(found), len(names))
	for i, d := range found {
		if want := i%100 == 0; (d.Version == 1) != want || want && string(d.Text) != names[i] || d.Now == 0 || d.Now != d.Wall {
			t.Fatalf("%s: %+v", names[i], d)
		}
	}
	must.Equal(t, p.scripts.Load()-before, 3, "script runs")
}

// What one reader comes upon is the error of all.
func TestOneOfManyJobsCannotBeRead(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	must.Do(t, admin.Set(t.Context(), "quotactl:v1:{job:job777}:s", "a string", 0).Err())
	store := openStore(t, server.URL(0), redisstore.Options{})
	if found, err := store.Jobs(t.Context(), jobNames(1000)); !errors.Is(err, driver.ErrStoreConfig) || found != nil {
		t.Fatalf("%d documents, %v; want ErrStoreConfig", len(found), err)
	}
}

// rewrite swaps records in, so many at a time.
func rewrite(t *testing.T, store *redisstore.Store, job string, records []driver.JobRecord) {
	t.Helper()
	for some := range slices.Chunk(records, 1500) {
		swapped(t, store, driver.JobSwap{Job: job, Records: some})
	}
}

// A long history is read in pages that meet, in the midst of one instant too, and
// it is cut down at once.
func TestLongHistory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	store := openStore(t, server.URL(0), redisstore.Options{})
	const all = 5300
	var records []driver.JobRecord
	var want []string
	for i := range all {
		at := int64(i / 2)
		if i >= 500 && i < 3600 { // more than a page at one instant
			at = 250
		}
		records = append(records, driver.JobRecord{At: 1<<53 - all + at, ID: fmt.Sprintf("%05d", i), Text: []byte(fmt.Sprint(i))})
		want = append(want, fmt.Sprint(i))
	}
	slices.Reverse(want)
	rewrite(t, store, "j", records)
	read := func(what string, query driver.JobHistoryQuery, want []string) {
		t.Helper()
		query.Job = "j"
		found, err := store.JobHistory(t.Context(), query)
		var got []string
		for _, r := range found {
			got = append(got, string(r.Text))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%s: %d records, %v; want %d, or other ones", what, len(got), err, len(want))
		}
	}
	read("all", driver.JobHistoryQuery{Most: all + 1}, want)
	read("as many as there are", driver.JobHistoryQuery{Most: all}, want)
	read("some", driver.JobHistoryQuery{Most: 3333}, want[:3333])
	read("before", driver.JobHistoryQuery{Most: all, Before: records[3600].At}, want[all-3600:])
	read("since", driver.JobHistoryQuery{Most: all, Since: records[3600].At}, want[:all-3600])
	kept := func(n int) {
		t.Helper()
		ids := must.Get(admin.ZCard(t.Context(), "quotactl:v1:{job:j}:h").Result())(t)
		must.Equal(t, ids, int64(n))
		texts := must.Get(admin.HLen(t.Context(), "quotactl:v1:{job:j}:r").Result())(t)
		must.Equal(t, texts, int64(n))
	}
	again := records[all-1:]
	swapped(t, store, driver.JobSwap{Job: "j", Records: again, Forget: records[3599].At + 1})
	kept(all - 3600)
	read("what was not forgotten", driver.JobHistoryQuery{Most: all}, want[:all-3600])
	rewrite(t, store, "j", records)
	swapped(t, store, driver.JobSwap{Job: "j", Records: again, Most: 17})
	kept(17)
	read("the most", driver.JobHistoryQuery{Most: all}, want[:17])
}

// Many values are set and removed in one swap.
func TestManyValues(t *testing.T) {
	t.Parallel()
	store := openStore(t, redistest.Start(t).URL(0), redisstore.Options{})
	set, unset := map[string][]byte{}, map[string][]byte{}
	for i := range 9001 {
		set[fmt.Sprint("set", i)] = []byte(fmt.Sprint(i))
		unset[fmt.Sprint("set", i)] = nil
	}
	unset["set777"] = []byte{}
	swapped(t, store, driver.JobSwap{Job: "j", Values: set})
	must.Equal(t, valueOf(t, store, "j", "set9000"), "9000")
	swapped(t, store, driver.JobSwap{Job: "j", Values: unset})
	kept, err := store.JobValue(t.Context(), "j", "set777")
	if err != nil || kept == nil || len(kept) > 0 || valueOf(t, store, "j", "set0") != "" || valueOf(t, store, "j", "set9000") != "" {
		t.Fatalf("%q (nil %v), %v; want an empty value, and no other", kept, kept == nil, err)
	}
}

// A history that lost one of its keys is neither read nor added to, and what is to
// be done is said.
func TestLostHistoryIsNoticed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	for part, read := range map[string]bool{"h": false, "r": true} {
		store := openStore(t, server.URL(0), redisstore.Options{Prefix: part})
		record := []driver.JobRecord{{At: 1, ID: "a", Text: []byte("{}")}}
		swapped(t, store, driver.JobSwap{Job: "j", Text: []byte("{}"), Records: record})
		key := part + ":v1:{job:j}:" + part
		must.Equal(t, must.Get(admin.Del(t.Context(), key).Result())(t), 1, "delete", key)
		_, err := store.SwapJob(t.Context(), driver.JobSwap{Job: "j", Version: 1, Records: record})
		if !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), key) {
			t.Errorf("without %s: %v, want ErrDamaged that names it", part, err)
		}
		if _, err := store.JobHistory(t.Context(), driver.JobHistoryQuery{Job: "j", Most: 1}); read && !errors.Is(err, driver.ErrDamaged) {
			t.Errorf("read without %s: %v, want ErrDamaged", part, err)
		}
		swapped(t, store, driver.JobSwap{Job: "j", Version: 1, Text: []byte("{}")}) // adds none
	}
}

// Keys of a job lie under its hash tag, and stay: a job that rests for a year goes
// on where it was.
func TestKeysOfJobs(t *testing.T) {
	t.Parallel()
	f, admin := startFake(t)
	const job = "@runs/youtube/key1"
	swapped(t, f.Store, driver.JobSwap{Job: job, Text: []byte("{}"), Values: map[string][]byte{"a": []byte("1")}, Records: []driver.JobRecord{{At: 1, ID: "a"}}})
	keys := must.Get(admin.Keys(t.Context(), "*").Result())(t)
	must.Equal(t, len(keys), 4)
	for _, key := range keys {
		if !strings.HasPrefix(key, "quotactl:v1:{job:"+job+"}:") {
			t.Errorf("key %q is not under the hash tag", key)
		}
		check.Equal(t, must.Get(admin.TTL(t.Context(), key).Result())(t), -1, key, "expires in")
	}
}

func BenchmarkJobs(b *testing.B) {
	servers := map[string]string{"single": redistest.Start(b).URL(0), "cluster": startCluster(b, 3, nil).url()}
	for _, what := range []string{"single", "cluster"} {
		store := openStore(b, servers[what], redisstore.Options{})
		names := jobNames(1000)
		for _, name := range names {
			if done, err := store.SwapJob(b.Context(), driver.JobSwap{Job: name, Text: []byte(strings.Repeat("text ", 60))}); err != nil || !done {
				b.Fatalf("%v, %v", done, err)
			}
		}
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
				must.Get(store.Jobs(b.Context(), names))(b)
			}
		})
	}
}
