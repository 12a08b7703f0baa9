package memstore_test

import (
	"sync/atomic"
	"testing"

	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/internal/storetest"
)

func TestGuarantees(t *testing.T) {
	var clock atomic.Int64
	storetest.Guarantees(t, memstore.New(clock.Load), &clock)
}

func TestWhyAddsUp(t *testing.T) {
	var clock atomic.Int64
	storetest.WhyAddsUp(t, memstore.New(clock.Load), &clock)
}

func TestWhyOfSkewedClocks(t *testing.T) {
	var clock atomic.Int64
	storetest.WhyOfSkewedClocks(t, memstore.New(clock.Load), &clock)
}
