package redisstore_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// countedTrips passes connections on to a server, and counts how often clients begin to connect or to
// send: each is a round trip, as a client sends nothing before it has its answer.
func countedTrips(t *testing.T, server string) (address string, trips *atomic.Int64) {
	t.Helper()
	listen := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listen.Close() })
	trips = new(atomic.Int64)
	go func() {
		for {
			client, err := listen.Accept()
			if err != nil {
				return
			}
			trips.Add(1)
			go func() {
				defer func() { _ = client.Close() }()
				to, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				defer func() { _ = to.Close() }()
				go func() { _, _ = io.Copy(client, to) }()
				for buffer := make([]byte, 1<<20); ; {
					n, err := client.Read(buffer)
					if err != nil {
						return
					}
					trips.Add(1)
					if _, err := to.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listen.Addr().String(), trips
}

// A process that does one thing takes at most three round trips, with a user and a database too.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	must.Do(t, admin.ConfigSet(t.Context(), "requirepass", "pa55word").Err())
	must.Do(t, admin.Do(t.Context(), "ACL", "SETUSER", "worker", "on", ">pa55word", "+@all", "~*").Err())
	for _, user := range []string{"", "worker"} {
		address, trips := countedTrips(t, server.Addr)
		store := func() *redisstore.Store {
			return openStore(t, "redis://"+user+":pa55word@"+address+"/3", redisstore.Options{Timeout: 5 * time.Minute})
		}
		now := func() int64 { return time.Now().UnixMicro() }
		charge := func(id string, lease time.Duration) func(s *redisstore.Store) error {
			return func(s *redisstore.Store) error {
				_, err := decide(t.Context(), s, driver.Item{ID: user + id, Operation: "op", Units: 1, Lease: lease.Microseconds()})
				return err
			}
		}
		finish := func(id string) func(s *redisstore.Store) error {
			return func(s *redisstore.Store) error {
				_, err := driver.FinishOne(t.Context(), s, name, now(), driver.Finish{ID: user + id, Units: 2})
				return err
			}
		}
		look := func(s *redisstore.Store) error {
			_, err := s.Look(t.Context(), driver.Look{Budget: name, Now: now()})
			return err
		}
		must.Do(t, errors.Join(charge("first", time.Minute)(store()), finish("first")(store()), look(store()))) // loads the scripts
		for what, call := range map[string]func(s *redisstore.Store) error{
			"a charge": charge("a", 0), "a reservation": charge("b", time.Minute), "a settlement": finish("b"), "a look": look,
			"a job": func(s *redisstore.Store) error {
				_, err := s.Job(t.Context(), "job")
				return err
			},
			"a ping": func(s *redisstore.Store) error { return s.Ping(t.Context()) },
		} {
			if what == "a settlement" {
				must.Do(t, charge("b", time.Minute)(store()))
			}
			before := trips.Load()
			if err := call(store()); err != nil || trips.Load()-before > 3 {
				t.Errorf("user %q, %s: %d round trips, %v", user, what, trips.Load()-before, err)
			}
		}
	}
}

// A call on a connection whose greeting is refused learns why, each time.
func TestRefusedGreetings(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--databases", "2")
	must.Do(t, server.Client().ConfigSet(t.Context(), "requirepass", "pa55word").Err())
	for url, says := range map[string]string{
		"redis://" + server.Addr:                  "password_env",
		"redis://:wr0ng@" + server.Addr:           "correct the user",
		"redis://none:pa55word@" + server.Addr:    "correct the user",
		"redis://:pa55word@" + server.Addr + "/7": "no such database",
		"redis://:wr0ng@" + server.Addr + "/1":    "correct the user",
	} {
		store := openStore(t, url, redisstore.Options{Timeout: 5 * time.Minute})
		for try := range 3 {
			_, err := decide(t.Context(), store, driver.Item{ID: "a", Operation: "op", Units: 1})
			if !errors.Is(err, driver.ErrStoreConfig) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("%s, try %d: %v, want %q", strings.ReplaceAll(url, server.Addr, "…"), try, err, says)
			}
		}
	}
	good := openStore(t, "redis://:pa55word@"+server.Addr+"/1", redisstore.Options{Timeout: 5 * time.Minute})
	charge(t, good, "a")
	check.Equal(t, used(t, good), int64(1), "used")
}
