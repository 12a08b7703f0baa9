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
	// sentinelsOften is the interval at which calls ask the sentinels. Failures alone
	// would not do: a master that was replaced behind a broken network still accepts
	// charges for up to ten seconds after the network is repaired.
	sentinelsOften = 500 * time.Millisecond
	// hearing is how long a look waits for other sentinels after the first answer.
	// firstHearing is the same while no master is known: then the answers count.
	hearing, firstHearing = 500 * time.Millisecond, 50 * time.Millisecond
	// After a failover the sentinels that did not lead it name the old master, of an
	// earlier epoch, until they learn of the new one (every two seconds). Sentinels that
	// name an earlier epoch for longer than setUpAnew were set up anew.
	setUpAnew = 10 * time.Second
)

var (
	// errNoMaster is why a call could not be sent: no sentinel named a master.
	errNoMaster = errors.New("no sentinel names the master")
	// errUnknownMaster is a sentinel's answer to a name that it does not know.
	errUnknownMaster = errors.New("the sentinel knows no master of this name")
	// errReplaced ends a call to a master that was replaced meanwhile.
	errReplaced = errors.New("the master was replaced during the call")
)

// sentinels is the client of the master that the sentinels name. It asks all of them and
// follows the highest configuration epoch, as they do themselves: a sentinel that was cut
// off from the others has an older one.
type sentinels struct {
	follow  *follower
	name    string
	seeds   []string
	options func(address string) *redis.Options // of servers
	quiet   func(address string) *redis.Options // of sentinels

	mu      sync.Mutex               // guards all below
	clients map[string]*redis.Client // of the sentinels, by address; nil: not open
	master  *redis.Client            // nil until a master is known
	epoch   int64                    // the epoch in which it became the master
	ready   chan struct{}            // closed when a master is known
	err     error                    // why the last look found no master
	closed  bool
	older   time.Time // since when most sentinels name an earlier epoch; zero: they do not
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

// known returns the master's client, or nil and why no master is known.
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

// current returns the master's client. Until a master is known, it waits for a look.
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

// word is one sentinel's answer.
type word struct {
	from   string
	master string
	epoch  int64
	state  map[string]string // its fields for the master
	others []string          // the addresses of the sentinels that it knows
	err    error
}

// find asks all sentinels, and directs calls to the master that they name. An answer that
// arrives after the look has ended counts too.
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

// asked returns the clients of all known sentinels, and opens those that are not open.
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

// drop closes the client of a sentinel that did not answer: a client that has failed to
// connect a few times would wait before it tries again.
func (s *sentinels) drop(address string, client *redis.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = client.Close()
	if s.clients[address] == client {
		s.clients[address] = nil
	}
}

// askOne asks one sentinel. It asks for the epoch before the address, so that the address
// is of that epoch or a later one.
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
	for _, other := range others.Val() { // empty if the user may not ask
		if other["ip"] != "" && other["port"] != "" {
			w.others = append(w.others, net.JoinHostPort(other["ip"], other["port"]))
		}
	}
	return w
}

// believe directs calls to the master of the highest epoch in the answers. An earlier epoch
// than the known one counts only if most of the sentinels name it for setUpAnew: they were
// set up anew.
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
	_ = old.Close() // ends the calls under way, which are then sent again
}

// noteEnd notes which sentinels a look found, and why no master is known.
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

// know adds sentinels to ask; s.mu is held.
func (s *sentinels) know(addresses []string) {
	for _, address := range addresses {
		if _, known := s.clients[address]; !known {
			s.clients[address] = nil
		}
	}
}
