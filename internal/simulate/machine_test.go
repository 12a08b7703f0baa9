package simulate

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs"
)

// daemons is how many share the store.
const daemons = 2

// machine is where the daemons run: one store, one clock, one configuration.
type machine struct {
	t       *testing.T
	month   month
	clock   *clock
	network *network
	store   *memstore.Store // of all daemons
	folder  string          // for all files
	reach   reach
	config  string
	log     *slog.Logger

	daemons [daemons]*daemon
	hosts   []io.Closer // of all lives
	history history

	headrooms []int64 // at the days' ends

	toStop  atomic.Pointer[span] // of the next daemon that fills the day
	stopped atomic.Int64         // how many stood still
	waking  sync.WaitGroup       // those who have them go on
	refused atomic.Int64         // charges of passes that were recorded as lost

	holds atomic.Int64 // that were made
}

// daemon is one that runs, and its clock.
type daemon struct {
	machine *machine
	number  int
	off     atomic.Int64 // what its wall clock is wrong by, in ns
	apart   atomic.Bool  // the store is out of its reach
	still   still        // its process may be stopped

	life *life // owned by the month's hand
	ends sync.WaitGroup
}

// life is a daemon's, from its start to its crash.
type life struct {
	handle *handle
	drain  chan struct{}
	cut    context.CancelCauseFunc
}

func (d *daemon) now() time.Time { return d.machine.clock.now().Add(time.Duration(d.off.Load())) }

// clocks are those of the daemon's machine.
func (d *daemon) clocks() *sqlitestore.Clocks {
	return &sqlitestore.Clocks{Wall: func() int64 { return d.now().UnixMicro() }, Boot: d.machine.clock.boot}
}

// load reads the configuration, as every daemon does for itself.
func load(t *testing.T, path string) (*config.Config, []*jobs.Job) {
	t.Helper()
	cfg := must.Get(config.Parse(path))(t)
	list := jobs.Load(cfg)
	must.Do(t, cfg.Err())
	return cfg, list
}

// writeConfig puts the configuration into a folder, beside which the outputs go.
func writeConfig(t *testing.T, folder string, s setting) (path string) {
	t.Helper()
	path = filepath.Join(folder, "costs.toml")
	must.Do(t, os.WriteFile(path, s.config, 0o600))
	return path
}

// start begins a life of the daemon.
func (d *daemon) start() {
	m := d.machine
	log := m.log.With("daemon", d.number+1)
	cfg, list := load(m.t, m.config)
	h := &handle{daemon: d, store: m.store, reach: &m.reach, apart: &d.apart}
	host := outage.New(h, outage.Options{
		Dir: filepath.Join(m.folder, "host"), Allowance: cfg.Store.OutageAllowance, Timeout: patience, Clocks: d.clocks(), Log: log,
	})
	budgets := map[string]*budget.Budget{}
	for _, name := range cfg.Budgets() {
		spec, err := cfg.Spec(name)
		if err != nil {
			m.t.Error(err)
			return
		}
		spec.Timeout = patience
		if budgets[name], err = budget.New(host, spec, budget.WithNow(d.now), budget.WithJobStore(h)); err != nil {
			m.t.Error(err)
			return
		}
	}
	runner, err := jobs.New(list, jobs.Options{
		State: h, Budgets: budgets, Now: d.now, Transport: transport{d}, Log: log,
		Poll: 20 * time.Second,
		Env:  func(string) (string, bool) { return "key", true },
	})
	if err != nil {
		m.t.Error(err)
		return
	}
	ctx, cut := context.WithCancelCause(context.Background())
	d.life = &life{handle: h, drain: make(chan struct{}), cut: cut}
	drain := d.life.drain
	d.ends.Go(func() {
		if err := runner.Run(ctx, drain, false); err != nil && !errors.Is(err, errCrash) {
			m.t.Errorf("daemon %d: %v", d.number+1, err)
		}
		cut(nil)
	})
	m.hosts = append(m.hosts, host)
}

var errCrash = errors.New("the daemon crashed")

// crash ends the daemon's life without a last word.
func (d *daemon) crash() {
	d.life.handle.dead.Store(true)
	d.life.cut(errCrash)
	d.life = nil
}

// drain ends the daemons in peace.
func (m *machine) drain() {
	for _, d := range m.daemons {
		if d.life != nil {
			close(d.life.drain)
		}
	}
	for _, d := range m.daemons {
		d.ends.Wait()
	}
}

// close lets go of what the daemons held of the host.
func (m *machine) close() {
	for _, h := range m.hosts {
		check.NoError(m.t, h.Close())
	}
}

// event is something that happens at an instant.
type event struct {
	at time.Time
	do func()
}

// events are the month's, in order.
func (m *machine) events() []event {
	var list []event
	add := func(at time.Time, do func()) { list = append(list, event{at, do}) }
	for _, o := range m.month.outages {
		add(o.at, func() { m.reach.state.Store(mute) })
		add(o.at.Add(muteFor), func() { m.reach.state.Store(away) })
		add(o.at.Add(o.dur), func() { m.reach.state.Store(reached) })
	}
	for _, p := range m.month.partings {
		d := m.daemons[p.daemon]
		add(p.at, func() { d.apart.Store(true) })
		add(p.at.Add(p.dur), func() { d.apart.Store(false) })
	}
	for _, c := range m.month.crashes {
		var d *daemon
		add(c.at, func() {
			d = m.daemons[c.daemon]
			if d.life == nil { // it is dead from the crash before
				d = m.daemons[(c.daemon+1)%daemons]
			}
			if d.life != nil {
				d.crash()
			}
		})
		add(c.at.Add(c.dur), func() {
			if d.life == nil {
				d.start()
			}
		})
	}
	for _, s := range m.month.steps {
		add(s.at, func() { m.daemons[s.daemon].off.Add(int64(s.by)) })
		add(s.at.Add(s.dur), func() { m.daemons[s.daemon].off.Add(-int64(s.by)) })
	}
	for _, s := range m.month.stops {
		add(s.at, func() { m.stop(s) })
	}
	for _, s := range m.month.intrusions {
		add(s.at, func() { m.network.intrude(s.units) })
	}
	for _, s := range m.month.suspends {
		add(s.at, func() { m.clock.suspend(s.dur) })
	}
	return list
}
