package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The ports that tests may use: below those that systems give to outgoing connections
// (from 32768 on, or 49152), of which tests make thousands. A cluster's nodes talk to each other
// on the port busAbove a server's.
const (
	firstPort = 10_000
	ports     = 10_000
	busAbove  = 10_000
)

// FreeAddress is an address of the loopback on which nothing listens. No other test, of any
// process, is given it before this one ends, whether a server runs there meanwhile or not.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(ports)
		address := loopback(port)
		// Servers use TCP alone, so the port's UDP half shows other tests that it is taken.
		held, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		if !isFree(address) || !isFree(loopback(port+busAbove)) {
			_ = held.Close()
			continue
		}
		t.Cleanup(func() { _ = held.Close() })
		return address
	}
	t.Fatalf("no port of the loopback from %d to %d is free", firstPort, firstPort+ports-1)
	return ""
}

func loopback(port int) string { return fmt.Sprint("127.0.0.1:", port) }

// isFree reports whether a server can listen on an address.
func isFree(address string) bool {
	l, err := net.Listen("tcp", address)
	return err == nil && l.Close() == nil
}
