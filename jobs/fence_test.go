package jobs

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// A pass that is taken for dead while it fetches asks for no further page: its
// charges carry its number. What it has stays; another pass may go on.
func TestAFencedPassAsksForNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &recorded{}
		w := newWorld(t, setup{job: `regions = ["US", "GB"]`, upstream: upstream})
		fenced := false
		upstream.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if n := upstream.count(); n == 2 && !fenced {
				fenced = true
				if err := w.options.Budgets["youtube/key1"].Fence(t.Context(), "trending", w.state().Active[0].Fence); err != nil {
					t.Error(err)
				}
			}
			w.sandbox.ServeHTTP(rw, r)
		})
		p := w.once()
		equal(t, "runs", outcomes(p), []string{"US lost fenced", "GB lost fenced"})
		if first := p.Runs[0]; first.Pages != 2 || first.Units != 2 || !strings.HasSuffix(first.Output, partialSuffix) || !strings.Contains(first.Error, "taken for dead") {
			t.Errorf("run %+v, want two pages kept", first)
		}
		if second := p.Runs[1]; second.Calls != 0 || second.Output != "" {
			t.Errorf("run %+v, want nothing asked for", second)
		}
		if upstream.count() != 2 || w.used() != 2 {
			t.Errorf("%d requests, %d units; want 2 of each", upstream.count(), w.used())
		}
		if p = w.once(); p.Outcome != Succeeded {
			t.Errorf("the next pass: %+v", p)
		}
	})
}
