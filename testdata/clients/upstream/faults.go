package upstream

import (
	"math/rand/v2"
	"net/http"
	"sync"
)

// Faults injects faults at random; a nil one injects none. It is safe for concurrent use.
type Faults struct {
	mu     sync.Mutex // guards all below
	random *rand.Rand
}

// NewFaults makes a test's faults from a seed.
func NewFaults(seed uint64) *Faults {
	return &Faults{random: rand.New(rand.NewPCG(seed, 6))}
}

// OneIn is true once in n times; never for 0.
func (f *Faults) OneIn(n int) bool {
	if f == nil || n == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(n) == 0
}

// IntN is a number below n, 0 without faults.
func (f *Faults) IntN(n int) int {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(n)
}

// Drop closes the connection instead of answering.
func Drop() { panic(http.ErrAbortHandler) }
