package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// sentinelsOften is how often the sentinels are asked while calls are made. A
	// master that was replaced behind a broken network accepts charges for up to ten
	// seconds after the network is whole again, so that no call fails.
	sentinelsOften = 500 * time.Millisecond
	// Once one sentinel has answered, a look waits so long for the others; and calls
	// that know no master yet wait so long before they believe those that answered.
	hearing, firstHearing = 500 * time.Millisecond, 50 * time.Millisecond
	// After a failover the sentinels that did not lead it name the old master, of an
	// earlier epoch, until they are told (every two seconds). Who names one for longer
	// was set up anew.
	setUpAnew = 10 * time.Second
)

var (
	// errNoMaster is why a call could not be sent: no sentinel named a master.
	errNoMaster = errors.New("no sentinel names the master")
	// errUnknownMaster is what a sentinel says of a name that it does not know.
	errUnknownMaster = errors.New("the sentinel knows no master of this name")
	// errReplaced ends a call to a master that was replaced meanwhile.
	errReplaced = errors.New("the master was replaced during the call")
)

// sentinels is the client of the master that the sentinels name. All of them are
// asked, and the highest configuration epoch is right, as it is among themselves:
// one that was cut off from the others knows an older one.
type sentinels struct {
	follow  *follower
	name    string
	seeds   []string
	options func(address string) *redis.Options // of servers
	quiet   func(address string) *redis.Options // of sentinels

	mu      sync.Mutex               // guards all below
	clients map[string]*redis.Client // of the sentinels, by address; nil where none is open
	master  *redis.Client            // nil until one is known
	epoch   int64                    // in which it became the master
	ready   chan struct{}            // closed when a master is known
	err     error                    // of the last look, when it found none
	closed  bool
	older   time.Time // since when most name an earlier epoch; zero: they do not
}

func newSentinels(name string, seeds []string, options, quiet func(address string) *redis.Options) *sentinels {
	s := &sentinels{name: name, seeds: seeds, options: options, quiet: quiet, ready: make(chan struct{}), clients: map[string]*redis.Client{}}
	s.follow = newFollower(sentinelsOften, s.find)
	return s
}

// Process sends a command to the master.
func (s *sentinels) Process(ctx context.Context, cmd redis.Cmder) error {
	master, err := s.current(ctx)
	if err == nil {
		err = master.Process(ctx, cmd)
		if errors.Is(err, redis.ErrClosed) || errors.Is(err, net.ErrClosed) {
			if now, _ := s.known(); now != nil && now != master {
				err = errReplaced
			}
		}
	}
	if err != nil {
		cmd.SetErr(err)
	}
	return err
}

// known is the client of the master; nil, and why, where none is known.
func (s *sentinels) known() (*redis.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, redis.ErrClosed
	case s.master == nil && s.err == nil:
		return nil, errNoMaster
	}
	return s.master, s.err
}

// current is the client of the master, which the first calls wait for.
func (s *sentinels) current(ctx context.Context) (*redis.Client, error) {
	master, err := s.known()
	if master != nil || errors.Is(err, redis.ErrClosed) {
		return master, err
	}
	select {
	case <-s.ready:
	case <-s.follow.look(lookPause):
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", errNoMaster, ctx.Err())
	}
	return s.known()
}

// Close ends looks and closes all connections.
func (s *sentinels) Close() error {
	s.follow.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var list []error
	for _, c := range s.clients {
		if c != nil {
			list = append(list, c.Close())
		}
	}
	if s.master != nil {
		list = append(list, s.master.Close())
	}
	return errors.Join(list...)
}

// word is what one sentinel says.
type word struct {
	from   string
	master string
	epoch  int64
	state  map[string]string // all that it says of the master
	others []string          // sentinels that it knows
	err    error
}

// find asks all sentinels, and leads calls to the master that they name. What one
// of them says later than the look lasts counts too.
func (s *sentinels) find(ctx context.Context) {
	asked := s.asked()
	words := make(chan word, len(asked))
	for address, client := range asked {
		s.follow.looks.Go(func() {
			ctx, cancel := context.WithTimeout(s.follow.ctx, lookTime)
			defer cancel()
			w := s.askOne(ctx, address, client)
			if w.err != nil {
				s.drop(address, client)
			}
			if master, _ := s.known(); master != nil && w.err == nil {
				s.believe([]word{w}, false)
			}
			words <- w
		})
	}
	var heard []word
	var faults []error
	var first, last <-chan time.Time
	for waiting := len(asked); waiting > 0; {
		select {
		case w := <-words:
			waiting--
			if w.err != nil {
				faults = append(faults, w.err)
				continue
			}
			if heard = append(heard, w); len(heard) == 1 {
				first, last = time.After(firstHearing), time.After(hearing)
			}
		case <-first:
			s.believe(heard, false)
		case <-last:
			waiting = 0
		case <-ctx.Done():
			waiting = 0
		}
	}
	s.believe(heard, 2*len(heard) > len(asked))
	s.noteEnd(heard, errors.Join(faults...))
}

// asked are the clients of the sentinels that are to be asked.
func (s *sentinels) asked() map[string]*redis.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.know(s.seeds)
	for address, client := range s.clients {
		if client == nil {
			s.clients[address] = redis.NewClient(s.quiet(address))
		}
	}
	return maps.Clone(s.clients)
}

// drop closes the client of a sentinel that did not answer. One that has failed to
// connect a few times waits before it tries again.
func (s *sentinels) drop(address string, client *redis.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = client.Close()
	if s.clients[address] == client {
		s.clients[address] = nil
	}
}

// askOne asks one sentinel. The epoch is asked before the address, which is then of
// that epoch or of a later one.
func (s *sentinels) askOne(ctx context.Context, address string, client *redis.Client) word {
	pipe := client.Pipeline()
	state := redis.NewMapStringStringCmd(ctx, "sentinel", "master", s.name)
	_ = pipe.Process(ctx, state)
	at := redis.NewStringSliceCmd(ctx, "sentinel", "get-master-addr-by-name", s.name)
	_ = pipe.Process(ctx, at)
	others := redis.NewMapStringStringSliceCmd(ctx, "sentinel", "sentinels", s.name)
	_ = pipe.Process(ctx, others)
	_, _ = pipe.Exec(ctx) // each command has its own error
	err := cmp.Or(state.Err(), at.Err())
	switch {
	case errors.Is(err, redis.Nil), hasCode(err, "ERR No such master with that name"):
		err = errUnknownMaster
	case err == nil && len(at.Val()) != 2:
		err = errNoMaster
	}
	if err != nil {
		return word{from: address, err: fmt.Errorf("ask the sentinel %s: %w", address, err)}
	}
	w := word{from: address, state: state.Val(), master: net.JoinHostPort(at.Val()[0], at.Val()[1])}
	w.epoch, _ = strconv.ParseInt(w.state["config-epoch"], 10, 64)
	for _, other := range others.Val() { // none where that may not be asked
		if other["ip"] != "" && other["port"] != "" {
			w.others = append(w.others, net.JoinHostPort(other["ip"], other["port"]))
		}
	}
	return w
}

// believe leads calls to the master of the highest epoch. An earlier epoch than
// the one that is known counts only when most of the sentinels say so, which were
// then set up anew.
func (s *sentinels) believe(heard []word, most bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(heard) == 0 || s.closed {
		return
	}
	best := slices.MaxFunc(heard, func(a, b word) int { return cmp.Compare(a.epoch, b.epoch) })
	switch {
	case s.master == nil || best.epoch > s.epoch || most && best.epoch == s.epoch:
		s.older = time.Time{}
	case !most:
		return
	case s.older.IsZero():
		s.older = time.Now()
		return
	case time.Since(s.older) < setUpAnew:
		return
	}
	s.epoch, s.err = best.epoch, nil
	old := s.master
	if old != nil && old.Options().Addr == best.master {
		return
	}
	s.master = redis.NewClient(s.options(best.master))
	if old == nil {
		close(s.ready)
		return
	}
	_ = old.Close() // ends the calls that are under way, which are sent again
}

// noteEnd keeps what a look found besides the master: the sentinels that there
// are, and why no master is known.
func (s *sentinels) noteEnd(heard []word, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if len(heard) == 0 {
		if s.master == nil && err != nil {
			s.err = fmt.Errorf("%w: %w", errNoMaster, err)
		}
		return
	}
	known := slices.Clone(s.seeds)
	for _, w := range heard {
		known = append(known, w.others...)
	}
	for address, client := range s.clients {
		if !slices.Contains(known, address) {
			if client != nil {
				_ = client.Close()
			}
			delete(s.clients, address)
		}
	}
	s.know(known)
}

// know has sentinels asked from now on; s.mu is held.
func (s *sentinels) know(addresses []string) {
	for _, address := range addresses {
		if _, known := s.clients[address]; !known {
			s.clients[address] = nil
		}
	}
}
