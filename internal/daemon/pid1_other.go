//go:build !linux

package daemon

// AsFirstProcess does nothing: containers run on Linux.
func AsFirstProcess() (code int, first bool) { return 0, false }
