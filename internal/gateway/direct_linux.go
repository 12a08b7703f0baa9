package gateway

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
)

// canTell reports whether isOurs works here, by a connection to a listener of this process: the
// kernel's tables may be hidden.
func canTell(ctx context.Context, l net.Listener) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		return false
	}
	defer closeAll(conn)
	return isOurs(conn.LocalAddr(), conn.RemoteAddr())
}

// isOurs reports whether the end of a connection on this machine that has the address from is,
// by the kernel's tables, an established connection of this process's user.
func isOurs(from, to net.Addr) bool {
	theirs, isTCP := from.(*net.TCPAddr)
	ours, _ := to.(*net.TCPAddr) // as the other one
	if !isTCP {
		return false
	}
	for range 2 { // the kernel may miss a row while others change
		for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			if uid, found := ownerIn(table, theirs, ours); found {
				return uid == os.Geteuid()
			}
		}
	}
	return false
}

// ownerIn finds the user of the established connection from one address to another.
func ownerIn(table string, from, to *net.TCPAddr) (uid int, found bool) {
	text, _ := os.ReadFile(table) // without it, nobody is found
	wide := strings.HasSuffix(table, "6")
	const established = "01"
	_, rest, _ := strings.Cut(string(text), fmt.Sprintf(" %s %s %s ", kernelAddress(from, wide), kernelAddress(to, wide), established))
	// Next come two queues, a timer, retransmits and the user.
	n, _ := fmt.Sscanf(rest, "%s %s %s %d", new(string), new(string), new(string), &uid)
	return uid, n == 4
}

// kernelAddress is an address as the kernel's tables have it: words of 32 bits as this machine
// reads them.
func kernelAddress(at *net.TCPAddr, wide bool) string {
	ip := at.IP.To4()
	if wide {
		ip = at.IP.To16()
	}
	var text strings.Builder
	for ; len(ip) >= 4; ip = ip[4:] {
		fmt.Fprintf(&text, "%08X", binary.NativeEndian.Uint32(ip))
	}
	return fmt.Sprintf("%s:%04X", text.String(), at.Port)
}
