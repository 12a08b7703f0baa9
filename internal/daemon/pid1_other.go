//go:build !linux

package daemon

// AsFirstProcess is for Linux, where containers are.
func AsFirstProcess() (code int, first bool) { return 0, false }
