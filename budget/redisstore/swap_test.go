package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// swapped swaps what must have the version that is given.
func swapped(t testing.TB, s *redisstore.Store, swap driver.JobSwap) {
	t.Helper()
	if done, err := s.SwapJob(context.Background(), swap); err != nil || !done {
		t.Fatalf("swap %+v: %v, %v", swap, done, err)
	}
}

func documentOf(t testing.TB, s *redisstore.Store, job string) driver.JobDocument {
	t.Helper()
	return must.Get(s.Job(context.Background(), job))(t)
}

func valueOf(t testing.TB, s *redisstore.Store, job, key string) string {
	t.Helper()
	value := must.Get(s.JobValue(context.Background(), job, key))(t)
	return string(value)
}

// loseSwap has a swap applied and its answer lost, and calls meanwhile before it
// is tried again.
func loseSwap(t *testing.T, store *redisstore.Store, p *proxy, swap driver.JobSwap, applied func() bool, meanwhile func()) (bool, error) {
	t.Helper()
	documentOf(t, store, swap.Job) // the clock is known
	p.next <- resetLater
	type answer struct {
		done bool
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		done, err := store.SwapJob(context.Background(), swap)
		answered <- answer{done, err}
	}()
	redistest.Await(t, "the first attempt is applied", applied)
	meanwhile()
	p.later <- struct{}{}
	a := <-answered
	return a.done, a.err
}

// A swap whose answer was lost is done, whatever others did before it was asked
// for again, and it is done once.
func TestLostSwapIsDone(t *testing.T) {
	t.Parallel()
	store, p, server := behind(t, patient)
	direct := openStore(t, server.URL(0), redisstore.Options{})
	for what, c := range map[string]struct {
		first  driver.JobSwap
		others int
		next   func(n int64) driver.JobSwap
	}{
		"text": {driver.JobSwap{Text: []byte("mine")}, 1, func(n int64) driver.JobSwap {
			return driver.JobSwap{Version: n, Text: []byte("theirs"), Values: map[string][]byte{"a": []byte("theirs")}}
		}},
		"texts": {driver.JobSwap{Text: []byte("mine")}, 15, func(n int64) driver.JobSwap {
			return driver.JobSwap{Version: n, Text: []byte("theirs"), Values: map[string][]byte{"a": []byte("theirs")}}
		}},
		"values": {driver.JobSwap{}, 1, func(int64) driver.JobSwap {
			return driver.JobSwap{Values: map[string][]byte{"a": []byte("theirs")}}
		}},
	} {
		c.first.Job, c.first.Values = what, map[string][]byte{"a": []byte("mine")}
		done, err := loseSwap(t, store, p, c.first, func() bool { return valueOf(t, direct, what, "a") == "mine" }, func() {
			for i := range c.others {
				next := c.next(int64(1 + i))
				next.Job = what
				swapped(t, direct, next)
			}
		})
		if err != nil || !done {
			t.Errorf("%s: %v, %v; want that it is done", what, done, err)
		}
		check.Equal(t, valueOf(t, direct, what, "a"), "theirs", what, "the value is, which came later")
	}
}

// Where so many others came that it cannot be told any more, the outcome is
// unknown, never that another was first.
func TestLostSwapAmongManyIsUnknown(t *testing.T) {
	t.Parallel()
	store, p, server := behind(t, patient)
	direct := openStore(t, server.URL(0), redisstore.Options{})
	swap := driver.JobSwap{Job: "j", Text: []byte("mine")}
	done, err := loseSwap(t, store, p, swap, func() bool { return documentOf(t, direct, "j").Version == 1 }, func() {
		for n := range int64(16) {
			swapped(t, direct, driver.JobSwap{Job: "j", Version: 1 + n, Text: []byte("theirs")})
		}
	})
	must.Is(t, err, driver.ErrUnavailable, done, "the outcome")
	if done, err := store.SwapJob(t.Context(), driver.JobSwap{Job: "j", Version: 1, Text: []byte("mine")}); err != nil || done {
		t.Fatalf("%v, %v; want that another was first", done, err)
	}
}

// Nothing of a swap that was given up happens later: what stands meanwhile is not
// overwritten when the server goes on.
func TestStoppedServerSwapsNothingLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openStore(t, server.URL(0), redisstore.Options{Timeout: time.Second})
	swapped(t, openStore(t, server.URL(0), redisstore.Options{}), driver.JobSwap{Job: "j", Text: []byte("before")})
	redistest.Await(t, "the store knows the document", func() bool {
		found, err := store.Job(t.Context(), "j")
		return err == nil && found.Version == 1
	})
	server.Signal(syscall.SIGSTOP)
	for i := range 3 {
		late := driver.JobSwap{Job: "j", Version: 1, Values: map[string][]byte{"a": []byte("late")}, Records: []driver.JobRecord{{At: 1, ID: fmt.Sprint(i)}}}
		if done, err := store.SwapJob(t.Context(), late); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("a swap on a stopped server: %v, %v", done, err)
		}
	}
	server.Signal(syscall.SIGCONT)
	patientStore := openStore(t, server.URL(0), redisstore.Options{})
	swapped(t, patientStore, driver.JobSwap{Job: "j", Version: 1, Records: []driver.JobRecord{{At: 2, ID: "after"}}})
	found, err := patientStore.JobHistory(t.Context(), driver.JobHistoryQuery{Job: "j", Most: 9})
	if err != nil || len(found) != 1 || valueOf(t, patientStore, "j", "a") != "" {
		t.Fatalf("%+v, %v, and the value %q; want nothing of what was given up", found, err, valueOf(t, patientStore, "j", "a"))
	}
}

// A permission that is missing, or a key of another type, spoils nothing: all of
// a swap is done, or none.
func TestSwapIsDoneWholeOrNot(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	whole := driver.JobSwap{
		Job: "j", Text: []byte("{}"), Values: map[string][]byte{"a": []byte("1"), "b": nil}, Most: 1,
		Records: []driver.JobRecord{{At: 1, ID: "a"}, {At: 2, ID: "b"}, {At: 3, ID: "c"}}, Forget: 2,
	}
	try := func(what, prefix, url string, mend ...any) {
		t.Helper()
		store := openStore(t, url, redisstore.Options{Prefix: prefix})
		if done, err := store.SwapJob(t.Context(), whole); !errors.Is(err, driver.ErrStoreConfig) {
			t.Errorf("%s: %v, %v, want ErrStoreConfig", what, done, err)
		}
		must.Do(t, admin.Do(t.Context(), mend...).Err())
		direct := openStore(t, server.URL(0), redisstore.Options{Prefix: prefix})
		found, err := direct.JobHistory(t.Context(), driver.JobHistoryQuery{Job: "j", Most: 9})
		if err != nil || len(found) != 0 || valueOf(t, direct, "j", "a") != "" || documentOf(t, direct, "j").Version != 0 {
			t.Errorf("%s: something was written: %+v, %v", what, found, err)
		}
		swapped(t, store, whole)
	}
	for _, command := range strings.Fields("hset hdel hmget hlen zadd zcard zremrangebyrank time") {
		must.Do(t, admin.Do(t.Context(), "ACL", "SETUSER", "no-"+command, "on", ">x", "~*", "+@all", "-"+command).Err())
		try("without "+command, "no-"+command, "redis://no-"+command+":x@"+server.Addr, "ACL", "SETUSER", "no-"+command, "+@all")
	}
	for _, part := range []string{"s", "k", "h", "r"} {
		key := "wrong-" + part + ":v1:{job:j}:" + part
		must.Do(t, admin.Set(t.Context(), key, "a string", 0).Err())
		try("a string at "+part, "wrong-"+part, server.URL(0), "DEL", key)
	}
}
