package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// socketAnswers is how long whoever listens on a socket has to take a call.
const socketAnswers = time.Second

// unixSocket is a listener on a Unix socket that this user alone can reach.
type unixSocket struct {
	net.Listener
	path string
	made os.FileInfo // what is removed at the end, unless another took its place
}

// listenUnix makes the socket with mode 0600. One that is there is replaced when
// nobody answers on it.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := replaceable(ctx, path); err != nil {
		return nil, err
	}
	// It is made where nobody else can reach it, so that there is no moment at
	// which another user may call, and then put in its place.
	private, err := os.MkdirTemp(filepath.Dir(path), ".quotactl-")
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer func() { _ = os.RemoveAll(private) }() // it is empty then
	hidden := filepath.Join(private, "s")
	var config net.ListenConfig
	socket, err := config.Listen(ctx, "unix", hidden)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	socket.(*net.UnixListener).SetUnlinkOnClose(false) // it is not where it was made
	s := &unixSocket{Listener: socket, path: path}
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
	return s, nil
}

// replaceable says why what stands at the path must stay.
func replaceable(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("listen on %s: %w", path, err)
	case info.Mode()&os.ModeSocket == 0:
		return usage("--listen unix:%s: there is a file that is no socket: give another path, or remove it", path)
	}
	dialer := net.Dialer{Timeout: socketAnswers}
	called, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		_ = called.Close()
	}
	if err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("listen on %s: another process listens there: stop it, or give another path", path)
	}
	return nil
}

// Close implements net.Listener.
func (s *unixSocket) Close() error {
	err := s.Listener.Close()
	if now, lost := os.Lstat(s.path); lost == nil && os.SameFile(now, s.made) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}
