package sqlitestore_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// helperVariable carries the role and the orders of a process that a test started:
// "role:orders".
const helperVariable = "QUOTACTL_SQLITE_HELPER"

// helperRoles are what such a process may be there for.
var helperRoles = map[string]func(orders string) error{
	"kill":  chargeUntilKilled,
	"quota": chargeOnFullDisk, "descriptors": openWithFewDescriptors,
	"user":  openAsAnotherUser,
	"queue": waitInQueue,
}

// asHelper does what this process was started for, if it was.
func asHelper() {
	role, orders, is := strings.Cut(os.Getenv(helperVariable), ":")
	if !is {
		return
	}
	if err := helperRoles[role](orders); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// helper is a process of this binary with a role; it is not started yet.
func helper(t *testing.T, role string, orders any) *exec.Cmd {
	t.Helper()
	effort.Processes(t)
	text := must.Get(json.Marshal(orders))(t)
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), helperVariable+"="+role+":"+string(text))
	return cmd
}

// say prints what the test that started this process waits for, in one write.
func say(format string, args ...any) error {
	_, err := os.Stdout.WriteString(fmt.Sprintf(format, args...) + "\n")
	return err
}
