package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lookTime bounds a look, which finds out where the servers are.
	lookTime = 2 * time.Second
	// lookPause is the least time between two looks that failing calls start.
	lookPause = 100 * time.Millisecond
	// firstRound is the timeout of a look's first round. Each further round has twice as
	// long, so that slow links work too.
	firstRound = 25 * time.Millisecond
)

// follower finds out where the servers are when calls fail: a master may have been
// replaced. Concurrent calls share one look. It continues after they give up, for later
// calls. Without calls the follower does nothing.
type follower struct {
	find func(ctx context.Context) // asks the servers, and directs later calls to the master
	// often is the interval of looks while calls succeed; 0: none.
	often time.Duration

	ctx    context.Context // ends with the store, not with the call that began a look
	cancel context.CancelFunc
	looks  sync.WaitGroup
	// trouble is true from a failure to the next answer.
	trouble atomic.Bool

	mu    sync.Mutex // guards all below
	began time.Time
	ended chan struct{} // closed when no look is under way
}

func newFollower(often time.Duration, find func(ctx context.Context)) *follower {
	f := &follower{find: find, often: often, ended: make(chan struct{})}
	close(f.ended)
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// look begins a look, unless one is under way, one began less than pause ago, or the store
// is closed. The channel is closed when the latest look has ended.
func (f *follower) look(pause time.Duration) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.ended:
	default:
		return f.ended
	}
	if time.Since(f.began) < pause || f.ctx.Err() != nil {
		return f.ended
	}
	ended := make(chan struct{})
	f.began, f.ended = time.Now(), ended
	f.looks.Go(func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(f.ctx, lookTime)
		defer cancel()
		f.find(ctx)
	})
	return ended
}

// begins must be called at the beginning of each call. After a failure a call waits for a
// look first, since its first attempt may take all of its time.
func (f *follower) begins(ctx context.Context) {
	switch {
	case f == nil:
	case f.trouble.Load():
		f.failed(ctx)
	case f.often > 0:
		f.look(f.often)
	}
}

// answered must be called when a server has answered.
func (f *follower) answered() {
	if f != nil && f.trouble.Load() {
		f.trouble.Store(false)
	}
}

// failed must be called when an attempt failed as it would if the master was replaced. It
// waits for a look, but at most half of the call's remaining time, so that the next
// attempt has the other half. It returns false for a nil follower.
func (f *follower) failed(ctx context.Context) bool {
	if f == nil {
		return false
	}
	f.trouble.Store(true)
	end, _ := ctx.Deadline() // Store.begin has set it
	wait := time.NewTimer(time.Until(end) / 2)
	defer wait.Stop()
	select {
	case <-f.look(lookPause):
	case <-wait.C:
	case <-ctx.Done():
	}
	return true
}

// stop ends looks and prevents further ones.
func (f *follower) stop() {
	if f != nil {
		f.mu.Lock()
		f.cancel()
		f.mu.Unlock()
	}
}

// wait waits until no look is under way.
func (f *follower) wait() {
	if f != nil {
		f.looks.Wait()
	}
}
