package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/must"
)

// A --once that did nothing, as another pass is under way, says why: in JSON,
// and below the table.
func TestAPassThatDidNotBeginSaysWhy(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		args := []string{"run", "--once", "--sandbox"}
		if asJSON {
			args = append(args, "--json")
		}
		p := newProgram(t, "https://upstream.invalid", args...)
		store := must.Get(open.Store(t.Context(), "sqlite:"+filepath.Join(p.Dir, "sandbox.db"), config.Store{Timeout: time.Minute}))(t)
		found := must.Get(store.Job(t.Context(), "trending"))(t)
		under := fmt.Sprintf(`{"active":[{"holder":"web1/4711/x","tick":1,"kind":"schedule","fence":1,"since":1,"until":%d}]}`, found.Now+time.Minute.Microseconds())
		if swapped, err := store.SwapJob(t.Context(), driver.JobSwap{Job: "trending", Text: []byte(under)}); err != nil || !swapped {
			t.Fatal(swapped, err)
		}
		must.Do(t, store.Close())
		p.start()
		p.exits(exitDone)
		why := `another pass of the job is under way, in process 4711 on web1, for tick 1970-01-01T00:00:00Z`
		told := strings.ReplaceAll(p.out.String(), "\n  ", " ")
		if asJSON {
			var answer struct {
				Passes []struct{ Outcome, Reason, Error string }
			}
			if err := json.Unmarshal(p.out.Bytes(), &answer); err != nil || len(answer.Passes) != 1 || answer.Passes[0].Reason != "overlap" {
				t.Fatalf("%v: %s", err, &p.out)
			}
			told = "trending: " + answer.Passes[0].Error
		}
		if !regexp.MustCompile(`trending: ` + why).MatchString(told) {
			t.Errorf("stdout does not say why:\n%s", &p.out)
		}
	}
}
