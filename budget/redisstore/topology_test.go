package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// every charges on several budgets and finds each whole, on whatever shard.
func every(t *testing.T, url string) {
	t.Helper()
	store := openStore(t, url, redisstore.Options{})
	for n := range 12 {
		key := fmt.Sprint("up/key", n)
		for i := range 5 {
			got := must.Get(store.Decide(t.Context(), driver.Batch{
				Budget: key, Now: time.Now().UnixMicro(), Limits: hourly,
				Items: []driver.Item{{ID: fmt.Sprint(i), Operation: []string{"a", "b"}[i%2], Units: 10}},
			}))(t)
			must.Equal(t, got.Items[0].Remaining, int64(90-10*i), "charge")
		}
	}
	var jobs []string
	for n := range 40 {
		job := fmt.Sprint("job", n)
		jobs = append(jobs, job)
		swap := driver.JobSwap{
			Job: job, Text: []byte(job), Values: map[string][]byte{"a": []byte(job)}, Records: []driver.JobRecord{{At: int64(n), ID: job}},
		}
		if done, err := store.SwapJob(t.Context(), swap); err != nil || !done {
			t.Fatalf("swap %s: %v, %v", job, done, err)
		}
	}
	found, err := store.Jobs(t.Context(), append(jobs, "none"))
	if err != nil || len(found) != len(jobs)+1 || found[len(jobs)].Version != 0 {
		t.Fatalf("%+v, %v", found, err)
	}
	for n, job := range jobs {
		history, err := store.JobHistory(t.Context(), driver.JobHistoryQuery{Job: job, Most: 2})
		if err != nil || len(history) != 1 || history[0].At != int64(n) || found[n].Version != 1 || string(found[n].Text) != job {
			t.Fatalf("%s: %+v, %+v, %v", job, found[n], history, err)
		}
		if value, err := store.JobValue(t.Context(), job, "a"); err != nil || string(value) != job {
			t.Fatalf("%s: %q, %v", job, value, err)
		}
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--cluster-enabled", "yes")
	admin := server.Client()
	must.Do(t, admin.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	redistest.Await(t, "the cluster is up", func() bool {
		info, err := admin.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	})
	every(t, "redis+cluster://"+server.Addr)
	must.Do(t, admin.FlushAll(t.Context()).Err())
	leastURL(t, server, "quotactl:*", redisstore.LeastClusterCommands) // as least, who may do so much
	every(t, "redis+cluster://least:secret@"+server.Addr)
	must.Do(t, admin.ScriptFlush(t.Context()).Err())
	must.Do(t, openStore(t, "redis+cluster://"+server.Addr, redisstore.Options{}).Ping(t.Context()))
}

// A budget is whole on one shard of a ring; when that one is down its budgets
// are out of reach, and none begins anew on another.
func TestRing(t *testing.T) {
	t.Parallel()
	one, two := redistest.Start(t), redistest.Start(t)
	url := "redis+ring://" + one.Addr + "," + two.Addr
	every(t, url)
	sizes := []int64{}
	for _, s := range []*redistest.Server{one, two} {
		admin := s.Client()
		n, err := admin.DBSize(t.Context()).Result()
		_ = admin.Close()
		if err != nil || n == 0 {
			t.Fatalf("a shard holds %d keys, %v", n, err)
		}
		sizes = append(sizes, n)
	}
	one.Kill()
	store := openStore(t, url, redisstore.Options{})
	refused := 0
	for n := range 12 {
		_, err := store.Look(t.Context(), driver.Look{Budget: fmt.Sprint("up/key", n), Now: time.Now().UnixMicro(), Limits: hourly})
		if err != nil {
			refused++
		}
	}
	admin := two.Client()
	if n, err := admin.DBSize(t.Context()).Result(); err != nil || n != sizes[1] || refused == 0 || refused == 12 {
		t.Fatalf("%d budgets are out of reach, the other shard holds %d keys (had %d), %v", refused, n, sizes[1], err)
	}
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	host, port, _ := net.SplitHostPort(server.Addr)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	must.Do(t, os.WriteFile(file, fmt.Appendf(nil, "sentinel monitor mymaster %s %s 1\n", host, port), 0o600))
	watcher := redistest.StartSentinel(t, file)
	admin := watcher.Client()
	redistest.Await(t, "the sentinel knows the master", func() bool {
		return admin.Do(context.Background(), "SENTINEL", "get-master-addr-by-name", "mymaster").Err() == nil
	})
	every(t, "redis+sentinel://"+watcher.Addr+"/mymaster")
}
