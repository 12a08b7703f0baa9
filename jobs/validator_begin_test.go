package jobs

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/quotactl/quotactl/budget"
)

// withoutKey is a state that does not answer who keeps a value of this key, or who
// removes it.
type withoutKey struct {
	State
	key     string
	removed bool
}

func (s withoutKey) SwapJob(ctx context.Context, swap budget.JobSwap) (bool, error) {
	if value, has := swap.Values[s.key]; has && (value == nil || !s.removed) {
		return false, errFails
	}
	return s.State.SwapJob(ctx, swap)
}

// A run whose pages were all unchanged has left no file to go on with: where its end
// was not kept, the next one asks again.
func TestAnUnchangedRunWhoseEndIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, upstream := conditional(t, setup{job: "checkpoint = \"1h\""})
		w.fetched()
		w.options.State = withoutKey{w.store, "validators/US", false}
		if run, _ := w.fetched(); run.Reason != ReasonUnchanged {
			t.Fatalf("run %+v", run)
		}
		w.options.State = w.store
		for version, want := range [][]string{nil, {"0.2"}} {
			upstream.pages[0] = version + 1
			upstream.forget()
			run, pages := w.fetched()
			if run.Calls != 3 || run.Resumed || (run.Output == "") != (want == nil) {
				t.Errorf("run %+v, want it to ask for all", run)
			}
			equal(t, "pages", pages, want)
		}
	})
}

// A run that is gone on with from unchanged pages alone, and is cut before its first,
// names no file: there is none.
func TestARunCutAfterUnchangedPagesHasNoFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, upstream := conditional(t, setup{job: "checkpoint = \"1h\""})
		w.fetched()
		upstream.fault = func(page, _ int) int {
			if page == 1 {
				return http.StatusForbidden
			}
			return 0
		}
		for _, resumed := range []bool{false, true} {
			if run := w.once().Runs[0]; run.Outcome != Failed || run.Resumed != resumed || run.Output != "" {
				t.Errorf("run %+v, want no file", run)
			}
		}
		if len(w.files()) != 1 {
			t.Errorf("files %v, want the first run's", w.files())
		}
	})
}
