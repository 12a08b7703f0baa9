package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Rate calls do from several goroutines for about span and returns the calls per second.
func Rate(b *testing.B, goroutines int, span time.Duration, do func(context.Context) error) float64 {
	ctx, cancel := context.WithTimeout(b.Context(), span)
	defer cancel()
	var n atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range goroutines {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := do(b.Context()); err != nil {
					b.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	return float64(n.Load()) / time.Since(start).Seconds()
}
