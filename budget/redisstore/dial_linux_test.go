package redisstore_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

// silentAddress is an address whose backlog is full, so that a connection to it hangs.
func silentAddress(t *testing.T) (address string, socket int) {
	t.Helper()
	socket = must.Get(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { _ = syscall.Close(socket) })
	must.Do(t, syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must.Do(t, syscall.Listen(socket, 0))
	bound, _ := must.Get(syscall.Getsockname(socket))(t).(*syscall.SockaddrInet4)
	address = fmt.Sprint("127.0.0.1:", bound.Port)
	dialer := net.Dialer{Timeout: 100 * time.Millisecond}
	for range 10 {
		conn, err := dialer.DialContext(t.Context(), "tcp", address)
		if err != nil {
			return address, socket
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("connections to a full backlog succeed")
	return "", 0
}

// An attempt whose connection hangs ends with its share of the time, which is less than what a
// connection may take, so that another is made.
func TestAConnectionThatHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	inTime(t, 2*time.Second, func(time.Duration) error { return chargeThroughSilence(t, server) })
}

// chargeThroughSilence charges at an address that is silent at first.
func chargeThroughSilence(t *testing.T, server *redistest.Server) error {
	t.Helper()
	address, socket := silentAddress(t)
	store := openStore(t, "redis://"+address, redisstore.Options{Timeout: 2 * time.Second})
	time.AfterFunc(300*time.Millisecond, func() {
		for { // accept what waits, and what comes
			fd, _, err := syscall.Accept(socket)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil {
				return
			}
			file := os.NewFile(uintptr(fd), "accepted")
			conn, err := net.FileConn(file)
			_ = file.Close()
			if err != nil {
				return
			}
			go forward(t, conn, server.Addr)
		}
	})
	_, err := chargeInTime(t, store, rand.Text())
	return err
}

// forward connects a connection to a server.
func forward(t *testing.T, conn net.Conn, address string) {
	var dialer net.Dialer
	server, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		_ = conn.Close()
		return
	}
	go func() {
		_, _ = io.Copy(server, conn)
		_ = server.Close()
	}()
	_, _ = io.Copy(conn, server)
	_ = conn.Close()
}

// A cluster of which one of the given addresses hangs decides all the same. It runs beside no
// other test: 900 ms are few.
func TestAClusterAddressThatHangs(t *testing.T) {
	nodes := startCluster(t, 3, nil)
	address, _ := silentAddress(t)
	inTime(t, 900*time.Millisecond, func(timeout time.Duration) error {
		var all sync.WaitGroup
		var failed [16]error
		for i := range failed { // each begins with an address that it picks at random
			all.Go(func() {
				store := must.Get(redisstore.Open(t.Context(), nodes.url()+","+address, redisstore.Options{Timeout: timeout}))(t)
				_, failed[i] = chargeInTime(t, store, fmt.Sprint(i))
				check.NoError(t, store.Close())
			})
		}
		all.Wait()
		return errors.Join(failed[:]...)
	})
}
