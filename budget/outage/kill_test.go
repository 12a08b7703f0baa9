package outage_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// The helper's environment.
const (
	helperStore    = "OUTAGE_TEST_STORE"
	helperDir      = "OUTAGE_TEST_DIR"
	helperUpstream = "OUTAGE_TEST_UPSTREAM"
	helperName     = "OUTAGE_TEST_NAME" // of this process, unlike a PID never used again
	helperTimeout  = "OUTAGE_TEST_TIMEOUT"
)

func TestMain(m *testing.M) {
	if os.Getenv(helperStore) != "" {
		if err := spendForEver(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	net.DefaultResolver = resolver()
	os.Exit(m.Run())
}

// sharedWindow is so long that the hosts come above the limit on a busy machine too.
const sharedWindow = 5 * time.Second

// What two hosts share in the test: a quota of 200 in a window, of which 80 are
// kept back, and of those each host may spend its half without the store.
var shared = budget.Spec{
	Name: "up/key1", Costs: map[string]budget.Cost{"list": {Units: 1}}, OnStoreError: driver.Open,
	Limits: []limit.Limit{
		{Name: "burst", Quota: 200, Headroom: 80, OutagePart: 80, Limit: 120, Counts: limit.CountUnits, Window: limit.RollingWindow(sharedWindow)},
	},
}

func openShared(ctx context.Context, url, dir string, timeout time.Duration) (*budget.Budget, error) {
	store, err := redisstore.Open(ctx, url, redisstore.Options{Timeout: timeout})
	if err != nil {
		return nil, err
	}
	host := outage.New(store, outage.Options{Dir: dir, Allowance: 1000, Hosts: 2, Timeout: timeout, Interval: 50 * time.Millisecond})
	spec := shared
	spec.Timeout = timeout
	return budget.New(host, spec, budget.WithClosers(host))
}

// spendForEver is a process of a host: it reserves, calls the upstream, settles,
// until it is killed.
func spendForEver() error {
	ctx := context.Background()
	timeout, err := time.ParseDuration(os.Getenv(helperTimeout))
	if err != nil {
		return err
	}
	b, err := openShared(ctx, os.Getenv(helperStore), os.Getenv(helperDir), timeout)
	if err != nil {
		return err
	}
	upstream, err := net.Dial("tcp", os.Getenv(helperUpstream))
	if err != nil {
		return err
	}
	answers := bufio.NewReader(upstream)
	again := time.NewTicker(3 * time.Millisecond) // at which a client that was refused tries again
	defer again.Stop()
	for n := 0; ; n++ {
		units := int64(1 + n%3)
		r, err := b.Reserve(ctx, budget.Call{Operation: "list", ID: fmt.Sprintf("%s-%d", os.Getenv(helperName), n), Units: &units}, 5*time.Second)
		if err != nil {
			var refused *budget.RefusedError
			if !errors.As(err, &refused) || !errors.Is(err, budget.ErrExhausted) && !errors.Is(err, driver.ErrUnavailable) {
				return err
			}
			<-again.C
			continue
		}
		if _, err := fmt.Fprintf(upstream, "%s %d %s\n", r.ID, units, r.Source); err != nil {
			return err
		}
		if _, err := answers.ReadString('\n'); err != nil {
			return err
		}
		if err := r.Settle(ctx, units); err != nil && !errors.Is(err, driver.ErrUnavailable) {
			return err
		}
	}
}

// arrival is a call as the upstream saw it.
type arrival struct {
	id     string
	units  int64
	source string
	at     time.Time
}

// upstream logs what arrives, by its own clock.
type upstream struct {
	addr string

	mu  sync.Mutex // guards log
	log []arrival
}

func startUpstream(t *testing.T) *upstream {
	t.Helper()
	listen := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listen.Close() })
	u := &upstream{addr: listen.Addr().String()}
	go func() {
		for {
			conn, err := listen.Accept()
			if err != nil {
				return
			}
			go u.serve(conn)
		}
	}()
	return u
}

func (u *upstream) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		a := arrival{at: time.Now()}
		if _, err := fmt.Sscan(lines.Text(), &a.id, &a.units, &a.source); err != nil {
			return
		}
		u.mu.Lock()
		u.log = append(u.log, a)
		u.mu.Unlock()
		if _, err := conn.Write([]byte("\n")); err != nil {
			return
		}
	}
}

// most is the most units that arrived within a window, anywhere in the log.
func (u *upstream) most(window time.Duration) (most int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	sum, first := int64(0), 0
	for _, a := range u.log {
		sum += a.units
		for !u.log[first].at.After(a.at.Add(-window)) {
			sum -= u.log[first].units
			first++
		}
		most = max(most, sum)
	}
	return most
}

// Two hosts of two processes each go through outages, and a process is killed at
// random, again and again: nothing that reached the upstream is missing in the
// ledger, nothing is there twice, and the upstream's quota is never passed.
func TestKilledThroughOutages(t *testing.T) {
	effort.Unraced(t)
	t.Parallel()
	effort.Processes(t)
	seed := effort.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	proxy := redistest.StartProxy(t, server.Addr, seed)
	nowhere := redistest.FreeAddress(t)
	u := startUpstream(t)
	dirs := []string{t.TempDir(), t.TempDir()}
	url := "redis://" + proxy.Addr
	processes, started := make([]*exec.Cmd, 4), 0
	kills, openKills := effort.Of(15, 25, 110), effort.Of(4, 8, 35)
	killed, killedOpen, outages, away := 0, 0, 0, false
	// Processes live longer, and wait longer for the store, the longer it takes: on a busy
	// machine the time that is enough elsewhere is too short for them.
	slower := func() time.Duration { return time.Duration(1 + killed/kills) }
	start := func(i int) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), helperStore+"="+url, helperDir+"="+dirs[i/2], helperUpstream+"="+u.addr, helperName+"="+fmt.Sprint("p", started),
			helperTimeout+"="+(slower()*150*time.Millisecond).String())
		started++
		cmd.Stderr = os.Stderr
		must.Do(t, cmd.Start())
		processes[i] = cmd
	}
	kill := func(i int) {
		_ = processes[i].Process.Kill()
		if err := processes[i].Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("a process ended on its own: %v", err)
		}
	}
	for i := range processes {
		start(i)
	}
	defer func() {
		for _, p := range processes {
			_ = p.Process.Kill()
		}
	}()
	open := func(i int) bool {
		records, _ := filepath.Glob(filepath.Join(dirs[i/2], "journal", "*", "*"))
		return len(records) > 0
	}
	// On a busy machine the hosts come above the limit only now and then: it goes on
	// until they did.
	tooFew := func() bool { return killed < kills || killedOpen < openKills || u.most(sharedWindow) <= 120 }
	for deadline := time.Now().Add(10 * time.Minute); tooFew() && time.Now().Before(deadline); {
		if rng.IntN(3) == 0 {
			switch away = !away; {
			case !away:
				server.Signal(syscall.SIGCONT)
				proxy.Lead(server.Addr)
			case rng.IntN(2) == 0:
				outages++
				server.Signal(syscall.SIGSTOP)
			default:
				outages++
				proxy.Lead(nowhere)
			}
		}
		timer := time.NewTimer(time.Duration(rng.Int64N(int64(slower() * 300 * time.Millisecond))))
		<-timer.C
		i := rng.IntN(len(processes))
		if open(i) {
			killedOpen++
		}
		kill(i)
		start(i)
		killed++
	}
	for i := range processes {
		kill(i)
		killed++
	}
	server.Signal(syscall.SIGCONT)
	proxy.Lead(server.Addr)
	if killed < kills || killedOpen < openKills {
		t.Fatalf("seed %d: %d kills, %d with a record open: too few to show anything", seed, killed, killedOpen)
	}
	// Each host's next look at the store records what is left.
	for _, dir := range dirs {
		b := must.Get(openShared(t.Context(), url, dir, 30*time.Second))(t)
		redistest.Await(t, "the store is there", func() bool {
			_, err := b.Status(t.Context())
			return err == nil
		})
		must.Do(t, b.Close())
		if left, _ := filepath.Glob(filepath.Join(dir, "*", "*", "*.charge*")); len(left) > 0 {
			t.Fatalf("seed %d: left over: %v", seed, left)
		}
	}
	admin := server.Client()
	entries := must.Get(admin.HGetAll(t.Context(), "quotactl:v1:{up/key1}:e").Result())(t)
	seen := map[string]bool{}
	allowance := 0
	for _, a := range u.log {
		if seen[a.id] {
			t.Errorf("seed %d: %s arrived twice", seed, a.id)
		}
		seen[a.id] = true
		if a.source == budget.SourceAllowance {
			allowance++
		}
		entry, there := entries[a.id]
		if want := fmt.Sprintf("|%d|", a.units); !there || !strings.Contains(entry, want) {
			t.Errorf("seed %d: %s of %d units by the %s arrived and stands in the ledger as %q", seed, a.id, a.units, a.source, entry)
		}
	}
	view := must.Get(spentBy(t, url))(t)
	check.Equal(t, view, int64(len(entries)), "seed", seed, "the ledger has")
	most := u.most(sharedWindow)
	t.Logf("seed %d: %d kills, %d with a record open, %d outages; %d arrivals, %d of them by allowance; %d ids in the ledger; at most %d of 200 units in a window",
		seed, killed, killedOpen, outages, len(u.log), allowance, len(entries), most)
	if most > 200 || allowance == 0 {
		t.Errorf("%d units arrived in a window, %d in all by the allowance: want no more than the quota of 200, and some by the allowance", most, allowance)
	}
	if extra := len(entries) - len(seen); extra > killed+len(processes) {
		t.Errorf("%d ids never arrived, of %d kills", extra, killed)
	}
}

// spentBy is how many calls the ledger counts.
func spentBy(t *testing.T, url string) (calls int64, err error) {
	t.Helper()
	store, err := redisstore.Open(t.Context(), url, redisstore.Options{Timeout: timeout})
	if err != nil {
		return 0, err
	}
	defer func() { _ = store.Close() }()
	view, err := store.Spent(t.Context(), driver.SpentQuery{Budget: "up/key1", Now: time.Now().UnixMicro(), By: driver.ByOperation})
	for _, row := range view.Rows {
		calls += row.Calls
	}
	return calls, err
}
