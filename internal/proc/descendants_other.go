//go:build !linux

package proc

import (
	"errors"
	"syscall"
)

// Undumpable does nothing here: it is for Linux.
func Undumpable() error { return nil }

func adoptOrphans() error { return nil }

func signalDescendants(syscall.Signal) (int, error) { return 0, errors.ErrUnsupported }
