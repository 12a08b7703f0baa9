package gateway

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// A connection's owner is the user of its other end's row, of an established connection alone.
func TestOwnerIn(t *testing.T) {
	table := filepath.Join(t.TempDir(), "tcp")
	from, to := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000}, &net.TCPAddr{IP: net.IPv4(127, 81, 2, 3), Port: 443}
	row := func(local, remote *net.TCPAddr, state, uid string) string {
		return "   1: " + kernelAddress(local, false) + " " + kernelAddress(remote, false) + " " + state + " 00000000:00000000 00:00000000 00000000 " + uid + " 0 1\n"
	}
	for name, c := range map[string]struct {
		rows  string
		uid   int
		found bool
	}{
		"none":            {"", 0, false},
		"its own":         {row(from, to, "01", "1000"), 1000, true},
		"ours":            {row(to, from, "01", "0"), 0, false},
		"another port":    {row(&net.TCPAddr{IP: from.IP, Port: 40001}, to, "01", "1000"), 0, false},
		"over":            {row(from, to, "06", "0"), 0, false},
		"over, then anew": {row(from, to, "06", "0") + row(from, to, "01", "65534"), 65534, true},
		"not a table":     {"x\n\n1 2 3\n", 0, false},
	} {
		must.Do(t, os.WriteFile(table, []byte("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"+c.rows), 0o600))
		uid, found := ownerIn(table, from, to)
		check.Equal(t, found, c.found, name)
		check.Equal(t, uid, c.uid, name)
	}
	_, found := ownerIn(filepath.Join(t.TempDir(), "none"), from, to)
	check.Equal(t, found, false, "no table")
}
