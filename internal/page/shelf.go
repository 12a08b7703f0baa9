package page

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/look"
)

const (
	// mostKept bounds how many readings are kept at once; those that nobody asked for longest go.
	mostKept = 128
	// mostReadings bounds how many readings are under way at once.
	mostReadings = 32
	// readTakes bounds one reading.
	readTakes = 30 * time.Second
)

// shelf keeps the last reading of each kind of numbers, so that however many pages are open, each
// kind is read once. A reading that is not fresh is still served while the next one is under way.
type shelf struct {
	log  func(what string, err error)
	tell func()              // something that was asked for in vain is there now
	work func(time.Duration) // that readings for open pages took
	base context.Context     // of all readings
	stop context.CancelFunc  // ends it
	slow chan struct{}       // one of the expensive readings at a time
	now  func() time.Time    // for what is shown
	hold sync.WaitGroup      // the readings under way

	mu    sync.Mutex // guards all below
	of    *config.Config
	under int    // readings under way
	ended bool   // there are no further readings
	epoch uint64 // what was read in an earlier one is not fresh
	books map[string]*book
}

// book is one kind of numbers.
type book struct {
	value any
	known bool          // value was read
	at    time.Time     // when it was read
	mono  time.Time     // when the last reading ended, on this machine's clock; zero: there was none
	took  time.Duration // what the last reading took
	epoch uint64        // of the last reading
	err   error         // likewise
	// reading is closed when the reading under way ends; nil: none is.
	reading chan struct{}
	owed    bool // somebody has got an older value, or none, and waits for news
	asked   time.Time
}

// stale reports whether the last reading, or its failure, is not as good as a new one.
func (b *book) stale(t terms, epoch uint64) bool {
	fresh := t.fresh
	if b.err == nil {
		fresh = max(fresh, time.Duration(t.costs)*b.took)
	}
	return b.mono.IsZero() || time.Since(b.mono) >= fresh || !t.ageing && b.epoch != epoch
}

// terms say how a kind of numbers is kept.
type terms struct {
	fresh time.Duration // how long a reading is as good as a new one
	// costs, if set, makes that longer: so many times what a reading takes.
	costs int
	// patient is how long to wait for a reading while an older one is there, and first while there
	// is none.
	patient, first time.Duration
	slow           bool // it is expensive: one at a time
	ageing         bool // a change does not make it stale: only its age does
	live           bool // for an open page that nobody has just asked for
}

// kept is a reading as it is served.
type kept struct {
	value any
	known bool
	at    time.Time
	err   error // why there is none, or none newer
	late  bool  // another one is under way
}

// get returns the last reading of a key, and reads if that is not fresh.
func (s *shelf) get(ctx context.Context, key string, t terms, from *look.Reader, read func(context.Context, *look.Reader) (any, error)) kept {
	s.mu.Lock()
	if s.of != from.Config { // another configuration: all is to be read anew
		s.of, s.books = from.Config, map[string]*book{}
	}
	b := s.books[key]
	if b == nil {
		b = &book{}
		s.books[key] = b
		s.forget()
	}
	b.asked = time.Now()
	stale := b.stale(t, s.epoch)
	switch {
	case !stale || b.reading != nil:
	case s.ended || s.under >= mostReadings:
		defer s.mu.Unlock()
		return kept{b.value, b.known, b.at, errBusy, false}
	default:
		s.under++
		b.reading = make(chan struct{})
		epoch, reading := s.epoch, b.reading
		s.hold.Go(func() { s.read(b, epoch, reading, t, from, key, read) })
	}
	under, patience := b.reading, t.patient
	if !b.known {
		patience = t.first
	}
	s.mu.Unlock()
	if stale && under != nil && patience > 0 {
		wait := time.NewTimer(patience)
		select {
		case <-under:
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	late := stale && b.reading == under && under != nil
	b.owed = b.owed || late
	return kept{b.value, b.known, b.at, b.err, late}
}

// read reads, and keeps what it read.
func (s *shelf) read(b *book, epoch uint64, reading chan struct{}, t terms, from *look.Reader, key string, do func(context.Context, *look.Reader) (any, error)) {
	ctx, cancel := context.WithTimeout(s.base, readTakes)
	defer cancel()
	var value any
	err := ctx.Err()
	if t.slow {
		select {
		case s.slow <- struct{}{}:
			defer func() { <-s.slow }()
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	began, at := time.Now(), s.now()
	if err == nil {
		err = caught(func() (err error) {
			value, err = do(ctx, from)
			return err
		})
	}
	took := time.Since(began)
	if err == nil && t.live && t.costs == 0 { // else it is seldom enough
		s.work(took)
	}
	if err != nil && s.base.Err() == nil {
		s.log(key, err)
	}
	s.mu.Lock()
	if b.err, b.took, b.mono, b.epoch = err, took, time.Now(), epoch; err == nil {
		b.value, b.known, b.at = value, true, at
	}
	owed := b.owed
	b.reading, b.owed = nil, false
	s.under--
	s.mu.Unlock()
	close(reading)
	if owed {
		s.tell()
	}
}

// caught is the error of what is done. A panic is an error too: these readings are not made where
// net/http catches it, and one that fails must not end the daemon with its jobs.
func caught(do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicked{value, debug.Stack()}
		}
	}()
	return do()
}

// panicked is a panic as an error, which a page may show.
type panicked struct {
	value any
	stack []byte
}

func (*panicked) Error() string {
	return "this program has a mistake here; the daemon's log says where: please report it"
}

// LogValue implements slog.LogValuer.
func (p *panicked) LogValue() slog.Value {
	return slog.GroupValue(slog.Any("panic", p.value), slog.String("stack", string(p.stack)))
}

// forget drops the readings that nobody asked for longest, beyond mostKept.
func (s *shelf) forget() {
	for len(s.books) > mostKept {
		oldest := ""
		for key, b := range s.books {
			if b.reading == nil && !b.asked.IsZero() && (oldest == "" || b.asked.Before(s.books[oldest].asked)) {
				oldest = key
			}
		}
		if oldest == "" {
			return
		}
		delete(s.books, oldest)
	}
}

// end ends all readings, and waits for them. There are none afterwards.
func (s *shelf) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.stop()
	s.hold.Wait()
}

// errBusy reports that numbers are not read now.
var errBusy = errors.New("too many readings are under way, or the daemon is stopping: try again in a moment")

// changed makes all readings stale that do not merely age.
func (s *shelf) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
}
