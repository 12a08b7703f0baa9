package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// A store that has charged on a node of a cluster is answered by the first call
// after the node's replica was promoted: the node is gone, or hangs.
func TestClusterMasterIsReplaced(t *testing.T) {
	t.Parallel()
	for how, leave := range map[string]func(t *testing.T, master *redistest.Server){
		"gone":  func(_ *testing.T, master *redistest.Server) { master.Kill() },
		"hangs": stop,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			inTime(t, 10*time.Second, func(timeout time.Duration) error {
				n := startCluster(t, 3, nil)
				idle := openStore(t, n.url(), redisstore.Options{Timeout: timeout})
				store := openStore(t, n.url(), redisstore.Options{Timeout: timeout})
				chargeAtLast(t, store, "a")
				chargeAtLast(t, idle, "b")
				from := n.owner(t, n.slotOf(t, name))
				replica := n.addReplica(t, from)
				leave(t, n.servers[from])
				n.promote(t, from, replica)
				_, err := chargeInTime(t, store, "c")
				if err != nil {
					return err
				}
				if _, err = chargeInTime(t, idle, "d"); err != nil {
					return err
				}
				must.Equal(t, len(ledgerOf(t, replica.Client(), name)), 4, "charges")
				return nil
			})
		})
	}
}

// silentConn is a connection on which the answer to the first command comes, and no
// other: what waits for one times out, earlier than it said.
type silentConn struct {
	net.Conn
	answered bool
}

func (c *silentConn) Read(b []byte) (int, error) {
	if c.answered {
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	}
	c.answered = true
	return c.Conn.Read(b)
}

// A look of a cluster asks again when no node answered in time, also where the
// connection says so long before the look's own time has ended; nodes that are known
// to be out of reach are not asked again.
func TestClusterIsAskedAgain(t *testing.T) {
	t.Parallel()
	node := miniredis.RunT(t)
	silent := func(conn net.Conn) (net.Conn, error) { return &silentConn{Conn: conn}, nil }
	fails := func(fault error) func(net.Conn) (net.Conn, error) {
		return func(conn net.Conn) (net.Conn, error) {
			return nil, errors.Join(&net.OpError{Op: "dial", Net: "tcp", Err: fault}, conn.Close())
		}
	}
	for what, c := range map[string]struct {
		fault func(conn net.Conn) (net.Conn, error)
		heals int64 // connections without the fault begin after so many; 0: none
		time  time.Duration
		least int64 // connections: a client that knows nothing tries two in a round
		most  int64
	}{
		"silent for two rounds": {fault: silent, heals: 4, time: time.Minute, least: 5, most: 10},
		"silent":                {fault: silent, time: 300 * time.Millisecond, least: 1, most: 20},
		"refused":               {fault: fails(syscall.ECONNREFUSED), time: 2 * time.Second, least: 2, most: 8},
		"out of reach":          {fault: fails(os.ErrDeadlineExceeded), time: 2 * time.Second, least: 2, most: 8},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			inTime(t, c.time, func(time.Duration) error {
				var dials atomic.Int64
				client := redisstore.NewCluster(&redis.ClusterOptions{
					Addrs: []string{node.Addr()}, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
					DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
					Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
						var dialer net.Dialer
						conn, err := dialer.DialContext(ctx, network, addr)
						if n := dials.Add(1); err != nil || c.heals > 0 && n > c.heals {
							return conn, err
						}
						return c.fault(conn)
					},
				})
				defer func() { _ = client.Close() }()
				ctx, cancel := context.WithTimeout(t.Context(), c.time)
				defer cancel()
				redisstore.Reload(ctx, client)
				got := dials.Load()
				if got < c.least {
					return fmt.Errorf("%w: %d connections were made, want %d", driver.ErrUnavailable, got, c.least)
				}
				if got > c.most {
					t.Errorf("%d connections were made, want at most %d", got, c.most)
				}
				return nil
			})
		})
	}
}

// configure sets what a server may be told while it runs.
func configure(t *testing.T, server *redistest.Server, pairs ...string) {
	t.Helper()
	admin := server.Client()
	for i := 0; i < len(pairs); i += 2 {
		must.Do(t, admin.ConfigSet(t.Context(), pairs[i], pairs[i+1]).Err())
	}
}

var slotsCalls = regexp.MustCompile(`cmdstat_cluster\|slots:calls=(\d+)`)

// A master that refuses to write without its replicas was cut off, so that calls
// look for the one that took its place.
func TestMasterWithoutItsReplicas(t *testing.T) {
	t.Parallel()
	n := startCluster(t, 3, nil)
	store := openStore(t, n.url(), redisstore.Options{})
	charge(t, store, "a")
	master := n.servers[n.owner(t, n.slotOf(t, name))]
	looks := func() (sum int) {
		for _, admin := range n.admins {
			if found := slotsCalls.FindStringSubmatch(info(admin, "commandstats")); found != nil {
				calls, _ := strconv.Atoi(found[1])
				sum += calls
			}
		}
		return sum
	}
	before := looks()
	configure(t, master, "min-replicas-to-write", "1")
	redistest.Await(t, "calls look for another master", func() bool {
		if _, err := decide(t.Context(), store, driver.Item{ID: "b", Operation: "op", Units: 1}); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "NOREPLICAS") {
			t.Fatalf("%v, want ErrUnavailable that says NOREPLICAS", err)
		}
		return looks() > before+4 // the client looks of its own accord once a minute
	})
	configure(t, master, "min-replicas-to-write", "0")
	charge(t, store, "b")
	must.Equal(t, used(t, store), 2, "used")
}

// fakeSentinel tells of a master what the test says.
type fakeSentinel struct {
	*server.Server
	mu     sync.Mutex // guards all below
	master string
	epoch  int
	others []string
	asked  int

	state []string      // set before the first call: further words on the master, in pairs
	hold  chan struct{} // set before the first call: answers wait for it
}

func startFakeSentinel(t *testing.T, master string) *fakeSentinel {
	t.Helper()
	s := must.Get(server.NewServer("127.0.0.1:0"))(t)
	t.Cleanup(s.Close)
	f := &fakeSentinel{Server: s, master: master}
	pairs := func(c *server.Peer, words ...string) {
		c.WriteLen(len(words))
		for _, word := range words {
			c.WriteBulk(word)
		}
	}
	must.Do(t, s.Register("SENTINEL", func(c *server.Peer, _ string, args []string) {
		if f.hold != nil {
			<-f.hold
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		switch args[0] {
		case "master":
			f.asked++
			pairs(c, append([]string{"name", args[1], "config-epoch", fmt.Sprint(f.epoch)}, f.state...)...)
		case "get-master-addr-by-name":
			host, port, _ := net.SplitHostPort(f.master)
			pairs(c, host, port)
		case "sentinels":
			c.WriteLen(len(f.others))
			for _, other := range f.others {
				host, port, _ := net.SplitHostPort(other)
				pairs(c, "ip", host, "port", port)
			}
		}
	}))
	return f
}

func (f *fakeSentinel) says(master string, epoch int, others ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.master, f.epoch = master, epoch
	if len(others) > 0 {
		f.others = others
	}
}

// looks is how often it was asked.
func (f *fakeSentinel) looks() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// chargeNothing makes a call of 0 units, which no limit refuses.
func chargeNothing(t *testing.T, store *redisstore.Store, id string) {
	t.Helper()
	got := must.Get(decide(t.Context(), store, driver.Item{ID: id, Operation: "op"}))(t)
	must.Equal(t, got[0].Result, driver.Granted, "charge", id)
}

// twoMasters are an old master and the new one that only one of three sentinels tells
// of, and a store that was led from one to the other.
type twoMasters struct {
	t                  *testing.T
	old, fresh         *redistest.Server
	oldAdmin, newAdmin *redis.Client
	left, right, third *fakeSentinel
	store              *redisstore.Store
	n                  int // charges made
}

func newTwoMasters(t *testing.T) *twoMasters {
	t.Helper()
	m := &twoMasters{t: t, old: redistest.Start(t), fresh: redistest.Start(t)}
	m.oldAdmin, m.newAdmin = m.old.Client(), m.fresh.Client()
	t.Cleanup(func() { _, _ = m.oldAdmin.Close(), m.newAdmin.Close() })
	m.left, m.right, m.third = startFakeSentinel(t, m.old.Addr), startFakeSentinel(t, m.old.Addr), startFakeSentinel(t, m.old.Addr)
	m.left.says(m.old.Addr, 3, m.right.Addr().String(), m.third.Addr().String())
	m.right.says(m.old.Addr, 3, m.left.Addr().String(), m.third.Addr().String())
	m.third.says(m.old.Addr, 3, m.left.Addr().String(), m.right.Addr().String())
	m.store = openStore(t, "redis+sentinel://"+m.left.Addr().String()+"/mymaster", redisstore.Options{})
	m.chargesOn("the store charges on the old master", m.oldAdmin)
	m.right.says(m.fresh.Addr, 4)
	m.chargesOn("the store charges on the new master", m.newAdmin)
	return m
}

// charge reports whether a charge, which must be granted, is on a server.
func (m *twoMasters) charge(admin *redis.Client) (on bool, id string) {
	m.t.Helper()
	m.n++
	id = fmt.Sprint(m.n)
	chargeNothing(m.t, m.store, id)
	on = must.Get(admin.HExists(m.t.Context(), "quotactl:v1:{"+name+"}:e", id).Result())(m.t)
	return on, id
}

// chargesOn charges until a server holds a charge.
func (m *twoMasters) chargesOn(what string, admin *redis.Client) {
	m.t.Helper()
	redistest.Await(m.t, what, func() bool {
		on, _ := m.charge(admin)
		return on
	})
}

// stays charges until the left sentinel was asked so many times more: all on the new master.
func (m *twoMasters) stays(what string, looks int) {
	m.t.Helper()
	before := m.left.looks()
	redistest.Await(m.t, what, func() bool {
		if on, id := m.charge(m.newAdmin); !on {
			m.t.Fatalf("charge %s went back to the old master", id)
		}
		return m.left.looks() > before+looks
	})
}

// The sentinel that a store heard first was cut off from the others, and still
// tells of the old master, which still takes charges. Once the store reaches the
// others it charges on the new master, though no call has failed; also where the
// URL names the first one alone. One sentinel alone does not lead it back.
func TestStoreFollowsTheSentinels(t *testing.T) {
	t.Parallel()
	m := newTwoMasters(t)
	m.stays("the store hears again of both", 3)
	// One is gone; the others were set up anew, and agree.
	m.right.Close()
	m.left.says(m.old.Addr, 0)
	m.third.says(m.old.Addr, 0)
	m.chargesOn("the store believes most of the sentinels", m.oldAdmin)
	m.third.says(m.fresh.Addr, 5)
	m.chargesOn("the store charges on the new master again", m.newAdmin)
	m.third.Close()
	m.stays("the store hears one of three", effort.Of(3, 25)) // in full for longer than most are not believed
}

// A call that waits for an old master is sent to the new one when the sentinels
// name it.
func TestCallIsSentToTheNewMaster(t *testing.T) {
	t.Parallel()
	old, fresh := redistest.Start(t), redistest.Start(t)
	before := startProxy(t, old.Addr, 1, time.Second)
	sentinel := startFakeSentinel(t, before.addr)
	store := openStore(t, "redis+sentinel://"+sentinel.Addr().String()+"/mymaster", redisstore.Options{})
	charge(t, store, "a")
	hold := make(chan struct{})
	defer close(hold)
	before.hold.Store(&hold)
	charged := make(chan error, 1)
	go func() {
		_, err := decide(context.Background(), store, driver.Item{ID: "b", Operation: "op", Units: 1})
		charged <- err
	}()
	redistest.Await(t, "the call has come to the old master", func() bool { return before.hold.Load() == nil })
	sentinel.says(fresh.Addr, 1)
	redistest.Await(t, "the call is answered", func() bool {
		must.Do(t, store.Ping(t.Context())) // as other calls, it has the sentinels asked
		return len(charged) == 1
	})
	must.Do(t, <-charged)
	admin := fresh.Client()
	if held := ledgerOf(t, admin, name); len(held) != 1 {
		t.Fatalf("the new master holds %v", held)
	}
}

// Many calls have few looks, and a store that is closed has none.
func TestLooksAreShared(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	sentinel := startFakeSentinel(t, master.Addr)
	store := openStore(t, "redis+sentinel://"+sentinel.Addr().String()+"/mymaster", redisstore.Options{})
	const callers, calls = 32, 50
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range calls {
				check.NoError(t, store.Ping(t.Context()))
			}
		})
	}
	all.Wait()
	if looks := sentinel.looks(); looks < 1 || looks > calls {
		t.Errorf("the sentinel was asked %d times for %d calls", looks, callers*calls)
	}
	must.Do(t, store.Close())
	looks := sentinel.looks()
	if err := store.Ping(t.Context()); !errors.Is(err, driver.ErrClosed) || sentinel.looks() != looks {
		t.Errorf("after its end: %v, and the sentinel was asked %d times more", err, sentinel.looks()-looks)
	}
}

// Close ends a look that is under way.
func TestCloseEndsLooks(t *testing.T) {
	t.Parallel()
	sentinel := startFakeSentinel(t, "127.0.0.1:1")
	sentinel.hold = make(chan struct{})
	store := openStore(t, "redis+sentinel://"+sentinel.Addr().String()+"/mymaster", redisstore.Options{})
	asked := make(chan error, 1)
	go func() { asked <- store.Ping(t.Context()) }()
	redistest.Await(t, "a look is under way", store.Looking)
	must.Do(t, store.Close())
	if store.Looking() {
		t.Error("a look outlives the store")
	}
	check.Is(t, <-asked, driver.ErrClosed, "the call says")
	close(sentinel.hold)
}

// Sentinels that do not know of a failover yet lead no call back to the old master, also
// where the one that led it falls silent.
func TestLeaderIsSilent(t *testing.T) {
	t.Parallel()
	m := newTwoMasters(t)
	m.right.Close()
	m.stays("the store hears of the old master alone", 3)
}
