package budget

import (
	"io"
	"log/slog"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Option changes how a Budget works.
type Option func(*Budget)

// WithClosers makes Close close these too, in order: the store, when the
// Budget is its only user.
func WithClosers(closers ...io.Closer) Option {
	return func(b *Budget) { b.closers = append(b.closers, closers...) }
}

// WithNow sets the caller's clock, for tests; the default is time.Now. It is only a
// witness: the store's clock decides.
func WithNow(now func() time.Time) Option {
	return func(b *Budget) { b.now = now }
}

// WithJobStore says where hosts share the evidence for automatic headroom; the default is the
// store of New, if it is one.
func WithJobStore(jobs driver.JobStore) Option {
	return func(b *Budget) { b.jobs = jobs }
}

// WithLog sets where the budget logs that an automatic headroom is more than its maximum or
// cannot be worked out; the default is nowhere.
func WithLog(log *slog.Logger) Option {
	return func(b *Budget) { b.log = log }
}
