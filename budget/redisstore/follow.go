package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lookTime ends a look at where the servers are.
	lookTime = 2 * time.Second
	// lookPause is the least time between two looks of calls that fail.
	lookPause = 100 * time.Millisecond
	// firstRound is how long the first node that a look asks may take; those after
	// it have twice as long each time, so that a link of any length is served.
	firstRound = 25 * time.Millisecond
)

// follower finds out where the servers are, for calls that fail: a master may have
// been replaced. Calls share a look, and it goes on when they have given up, for
// the calls that come after them. Without calls it does nothing.
type follower struct {
	find func(ctx context.Context) // asks, and leads later calls to what it finds
	// often is how often calls have it look while nothing fails; 0: never.
	often time.Duration

	ctx    context.Context // ends with the store, not with the call that began a look
	cancel context.CancelFunc
	looks  sync.WaitGroup
	// trouble is set from a failure to the next answer.
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

// look begins a look, unless one is under way or began less than the pause ago, or
// the store is closed. The channel is closed when the last one has ended.
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

// begins is told of each call. While something fails, a call looks first: its first
// attempt may have all the time that it has.
func (f *follower) begins(ctx context.Context) {
	switch {
	case f == nil:
	case f.trouble.Load():
		f.failed(ctx)
	case f.often > 0:
		f.look(f.often)
	}
}

// answered is told that a server serves.
func (f *follower) answered() {
	if f != nil && f.trouble.Load() {
		f.trouble.Store(false)
	}
}

// failed is told that an attempt failed in a way that a replaced master explains.
// It waits for a look, at most half of the time that the call has left, so that
// the next attempt has the other half. False where there is nothing to look for.
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

// stop ends looks; none begins after it.
func (f *follower) stop() {
	if f != nil {
		f.mu.Lock()
		f.cancel()
		f.mu.Unlock()
	}
}

// wait returns when no look is under way.
func (f *follower) wait() {
	if f != nil {
		f.looks.Wait()
	}
}
