package redisstore_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// answering is the address of a server that gives each request the same answer, and tells of the third.
func answering(t *testing.T, answer string) (address string, third <-chan struct{}) {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	asked, reached := new(atomic.Int64), make(chan struct{})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for buffer := make([]byte, 1<<16); ; {
					if _, err := conn.Read(buffer); err != nil {
						return
					}
					if asked.Add(1) == 3 {
						close(reached)
					}
					if _, err := conn.Write([]byte(answer)); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String(), reached
}

// A server that answers nothing but faults that pass has not answered, so that a host does not go on
// asking it. One error of another kind is an answer.
func TestFaultsAreNoAnswers(t *testing.T) {
	t.Parallel()
	for answer, counts := range map[string]bool{
		"-LOADING Redis is loading the dataset in memory\r\n":                  false,
		"-CLUSTERDOWN The cluster is down\r\n":                                 false,
		"-READONLY You can't write against a read only replica.\r\n":           false,
		"-MASTERDOWN Link with MASTER is down\r\n":                             false,
		"-TRYAGAIN Multiple keys request during rehashing of slot\r\n":         false,
		"-BUSY Redis is busy running a script. You can only call SHUTDOWN\r\n": true,
	} {
		address, third := answering(t, answer)
		store := openStore(t, "redis://"+address, redisstore.Options{Timeout: 5 * time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := store.Look(ctx, driver.Look{Budget: name, Now: time.Now().UnixMicro()})
			failed <- err
		}()
		var err error
		select {
		case <-third:
			cancel()
			err = <-failed
		case err = <-failed:
			cancel()
		}
		_, answers := store.Distance()
		check.Equal(t, answers > 0, counts, answer, "counts as an answer:", err)
	}
}
