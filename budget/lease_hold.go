package budget

import (
	"sync/atomic"
	"time"
)

// How long a lease relies on the store's answers: it looks every leaseLook, and hands out
// nothing leaseFresh after the last look that was answered was asked. After leaseQuiet
// without a take it looks no more until somebody takes.
const (
	leaseLook  = 300 * time.Millisecond
	leaseFresh = 900 * time.Millisecond
	leaseQuiet = 10 * time.Second
)

// holding is one charge of a lease, from which takes are made. Takes only use what is
// atomic, and low.
type holding struct {
	left atomic.Int64 // below 0: it is closed
	_    [56]byte     // takers change left; what they only read has cache lines of its own

	// Takes end at the earlier of these: by the monotonic clock, since base, and by the wall
	// clock, which goes on while the machine sleeps.
	until, wall atomic.Int64 // ns
	base        time.Time
	low         int64 // once fewer units are left, the lease is renewed

	receipt  Receipt
	units    int64
	ends     time.Time // when takes end
	over     int64     // when its lease ends, µs on the store's clock
	tried    bool      // it was renewed in the background, or that was refused
	quiet    time.Time // since when nobody takes
	leftThen int64     // at quiet
}

// newHolding holds what was just charged. Asked is when, by this process's clock.
func newHolding(receipt Receipt, units int64, lease time.Duration, asked, ends time.Time) *holding {
	h := &holding{
		base: asked, low: units / 4, receipt: receipt, units: units, ends: ends,
		over: receipt.At.Add(lease).UnixMicro(), quiet: asked, leftThen: units,
	}
	h.left.Store(units)
	h.confirm(asked)
	return h
}

// confirm: the store's answer to a question asked at asked is that takes may go on.
func (h *holding) confirm(asked time.Time) {
	until := asked.Add(leaseFresh)
	if until.After(h.ends) {
		until = h.ends
	}
	h.until.Store(int64(until.Sub(h.base)))
	h.wall.Store(until.UnixNano())
}

// fresh reports whether takes may be made at an instant.
func (h *holding) fresh(now time.Time) bool {
	return int64(now.Sub(h.base)) < h.until.Load() && now.UnixNano() < h.wall.Load()
}

// take takes units if there are enough and they may be taken. low: it is the take after
// which few are left.
func (h *holding) take(units int64, now time.Time) (took, low bool) {
	if !h.fresh(now) {
		return false, false
	}
	for {
		left := h.left.Load()
		if left < units {
			return false, false
		}
		if h.left.CompareAndSwap(left, left-units) {
			return true, left >= h.low && left-units < h.low
		}
	}
}

// close ends the takes and returns how many units were taken.
func (h *holding) close() (taken int64) { return h.units - max(0, h.left.Swap(-1)) }

// used reports whether anything was taken.
func (h *holding) used() bool { return h.left.Load() < h.units }

// idle reports whether nobody has taken anything for leaseQuiet.
func (h *holding) idle(now time.Time) bool {
	if left := h.left.Load(); left != h.leftThen {
		h.quiet, h.leftThen = now, left
	}
	return now.Sub(h.quiet) >= leaseQuiet
}

// renewAt is when a holding that is used is renewed, because its time runs out.
func (h *holding) renewAt() time.Time { return h.ends.Add(-h.ends.Sub(h.base) / 4) }
