package proc

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// copying is a change that has lines reported, and standard error written to a pipe, which is
// standard output's if same is set. The read end is returned.
func copying(t *testing.T, same bool) (change func(*exec.Cmd), errors *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	must.Do(t, err)
	t.Cleanup(func() { _, _ = read.Close(), write.Close() })
	return func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, asCopier+"=1")
		if cmd.Stderr = write; same {
			cmd.Stderr = cmd.Stdout
		}
	}, read
}

// What the command prints to standard error goes where it went, and standard output stays its own.
func TestCopiedErrors(t *testing.T) {
	change, errors := copying(t, false)
	m := meter(t, long, long, change, "sh", "-c", "echo out; echo first >&2; printf 'no end' >&2; exit 3")
	check.Equal(t, m.prints(), "out")
	m.reported("stderr 5 first")
	m.reported("stderr 6 no end")
	m.ends("code 3")
	said := make([]byte, len("first\nno end"))
	must.Get(errors.Read(said))(t)
	check.Equal(t, string(said), "first\nno end")
}

// If both are the same file, as under cron, the order of what is printed stays.
func TestCopiedInOrder(t *testing.T) {
	change, _ := copying(t, true)
	m := meter(t, long, long, change, "sh", "-c", "for n in $(seq 500); do echo out $n; echo err $n >&2; done")
	for n := range 500 {
		check.Equal(t, m.prints(), fmt.Sprint("out ", n+1))
		check.Equal(t, m.prints(), fmt.Sprint("err ", n+1))
	}
	for n := range 500 {
		for _, stream := range []string{"out", "err"} {
			text := fmt.Sprint(stream, " ", n+1)
			m.reported(fmt.Sprintf("stderr %d %s", len(text), text))
		}
	}
	m.ends("code 0")
}

// A command whose errors nobody reads any more learns it, as it would without us.
func TestCopiedToNobody(t *testing.T) {
	change, errors := copying(t, false)
	m := meter(t, long, long, func(cmd *exec.Cmd) {
		change(cmd)
		must.Do(t, errors.Close())
		write := cmd.Stderr.(*os.File)
		t.Cleanup(func() { _ = write.Close() })
	}, "sh", "-c", "while echo more >&2; do :; done; exit 5")
	for {
		line := strings.TrimSpace(must.Get(m.reports.ReadString('\n'))(t))
		if code, ended := strings.CutPrefix(line, "code "); ended {
			check.Equal(t, code == "5" || code == "141", true, code) // a shell may end by SIGPIPE
			break
		}
	}
}
