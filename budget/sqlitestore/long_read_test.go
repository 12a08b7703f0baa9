package sqlitestore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// watched is a context that runs a function when somebody asks whether it ended.
type watched struct {
	context.Context
	asked func()
}

func (w watched) Err() error {
	w.asked()
	return w.Context.Err()
}

// While a sum of the ledger is under way, everything else of the store goes on.
func TestLongReadDelaysNobody(t *testing.T) {
	b := newBench(t, rolling(100, hour))
	b.granted(item("a", 1))
	b.close()
	b.open() // the first call after opening has more to look at
	sqlitestore.SetTimeout(b.store, 10*time.Second)
	asked, within := 0, false
	ctx := watched{t.Context(), nil}
	ctx.asked = func() {
		if within { // asked by a call of this function
			return
		}
		within = true
		asked++
		b.granted(item(fmt.Sprint("b", asked), 1))
		check.Equal(t, b.used(), int64(1+asked), "units used")
		b.history("job")
		within = false
	}
	view := must.Get(b.store.Spent(ctx, driver.SpentQuery{Budget: name, Now: b.now, By: driver.ByOperation}))(t)
	must.Equal(t, len(view.Rows), 1)
	if view.Rows[0].Units > int64(asked) {
		t.Error("nothing was charged while the sum was under way: the test shows nothing")
	}
}
