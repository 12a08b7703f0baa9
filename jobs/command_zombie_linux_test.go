package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
)

// children are those of this process that nobody has reaped, "PID state".
func children(t *testing.T) (list []string) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("%v, %v", tasks, err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for pid := range strings.FieldsSeq(string(text)) {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			if err != nil {
				continue
			}
			_, state, _ := strings.Cut(string(stat), ") ")
			list = append(list, pid+" "+state[:1])
		}
	}
	return list
}

// However a command ends, and whatever it leaves, no child of the daemon is left
// unreaped.
func TestNoZombies(t *testing.T) {
	for script, want := range map[string]Outcome{
		"exit 0": Succeeded, "exit 3": Failed, "kill -9 $$": Failed, "sleep 60": TimedOut, "trap '' TERM; sleep 60; sleep 60": TimedOut,
		"sleep 60 & exit 0": Succeeded, "sleep 60 >/dev/null 2>&1 & exit 1": Failed, "yes": TimedOut,
	} {
		t.Run(fmt.Sprint(script), func(t *testing.T) {
			before := len(children(t))
			w := commandWorld(t, "grace = \"0s\"\nretries = 1", script)
			w.list[0].Timeout, w.list[0].RetryWait = patience, time.Millisecond
			if want == TimedOut {
				w.list[0].Timeout = 300 * time.Millisecond
			}
			check.Equal(t, w.onlyRun().Outcome, want)
			if left := children(t); len(left) != before {
				t.Errorf("children %v", left)
			}
		})
	}
	w := commandWorld(t, "retries = 1", "")
	w.list[0].Command, w.list[0].RetryWait = []string{"./not-there"}, time.Millisecond
	w.onlyRun()
	if left := children(t); len(left) != 0 {
		t.Errorf("children %v", left)
	}
}
