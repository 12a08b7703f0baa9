package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// socketAnswers is how long a process that listens on a socket has to accept.
	socketAnswers = time.Second
	// socketLook is how often the daemon checks that callers still reach its socket.
	socketLook = 2 * time.Second
)

// unixSocket is a listener on a Unix socket that only this user can reach. It closes itself
// when callers can no longer reach it.
type unixSocket struct {
	*net.UnixListener
	path string
	made os.FileInfo // Close removes this file, unless another has replaced it

	once   sync.Once
	closed chan struct{}
	lost   chan error // why watch closed the listener
}

// listenUnix makes the socket with mode 0600. It replaces an existing socket if no process
// listens on it.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := replaceable(ctx, path); err != nil {
		return nil, err
	}
	// Make the socket in a private directory and then move it into place. So there is no
	// moment at which another user could connect.
	private, err := os.MkdirTemp(filepath.Dir(path), ".quotactl-")
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer func() { _ = os.RemoveAll(private) }() // empty once the socket has moved
	hidden := filepath.Join(private, "s")
	var config net.ListenConfig
	socket, err := config.Listen(ctx, "unix", hidden)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	s := &unixSocket{UnixListener: socket.(*net.UnixListener), path: path, closed: make(chan struct{}), lost: make(chan error, 1)}
	s.SetUnlinkOnClose(false) // the socket will have moved
	err = os.Chmod(hidden, 0o600)
	if err == nil {
		s.made, err = os.Lstat(hidden)
	}
	if err == nil {
		err = os.Rename(hidden, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), socket.Close())
	}
	go s.watch()
	return s, nil
}

// watch closes the listener once no caller can reach it. Accept would not report that.
func (s *unixSocket) watch() {
	look := time.NewTicker(socketLook)
	defer look.Stop()
	for {
		select {
		case <-s.closed:
			return
		case <-look.C:
		}
		if err := s.unreachable(); err != nil {
			s.lost <- err
			_ = s.UnixListener.Close() // ends Accept
			return
		}
	}
}

// unreachable says why callers cannot reach the socket; nil if they can, or if that cannot
// be found out.
func (s *unixSocket) unreachable() error {
	now, err := os.Lstat(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("the socket %s was removed", s.path)
	case err == nil && !os.SameFile(now, s.made):
		return fmt.Errorf("another file has replaced the socket %s", s.path)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil // it is being closed
	}
	var shut bool
	err = raw.Control(func(fd uintptr) {
		look := []unix.PollFd{{Fd: int32(fd)}}
		n, failure := unix.Poll(look, 0)
		shut = failure == nil && n == 1 && look[0].Revents&unix.POLLHUP != 0
	})
	if err == nil && shut {
		return fmt.Errorf("the socket %s was shut down", s.path)
	}
	return nil
}

// Accept implements net.Listener.
func (s *unixSocket) Accept() (net.Conn, error) {
	conn, err := s.UnixListener.Accept()
	if err == nil {
		return conn, nil
	}
	select {
	case err = <-s.lost:
	default:
	}
	return nil, err
}

// replaceable says why an existing file at the path must stay; nil if it may be replaced
// or does not exist.
func replaceable(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("listen on %s: %w", path, err)
	case info.Mode()&os.ModeSocket == 0:
		return wrongEndpoint("--listen unix:%s: the file there is not a socket: give another path, or remove the file", path)
	}
	dialer := net.Dialer{Timeout: socketAnswers}
	called, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		_ = called.Close()
	}
	if err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("listen on %s: another process already listens there: stop it, or give another path", path)
	}
	return nil
}

// Close implements net.Listener.
func (s *unixSocket) Close() error {
	s.once.Do(func() { close(s.closed) })
	err := s.UnixListener.Close()
	if now, lost := os.Lstat(s.path); lost == nil && os.SameFile(now, s.made) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}
