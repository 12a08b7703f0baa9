package jobs

import (
	"net/http"
	"testing"
	"testing/synctest"
)

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
