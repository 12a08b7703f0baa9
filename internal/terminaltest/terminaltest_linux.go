package terminaltest

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quotactl/quotactl/internal/must"
)

// New makes a pseudo terminal: what is written to the master is what a person types.
func New(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master = must.Get(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))(t)
	fd := int(master.Fd())
	must.Do(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number := must.Get(unix.IoctlGetInt(fd, unix.TIOCGPTN))(t)
	slave = must.Get(os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0))(t)
	t.Cleanup(func() { _, _ = master.Close(), slave.Close() })
	return master, slave
}
