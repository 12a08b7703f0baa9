//go:build !linux

package proc

import "errors"

// AwaitExit cannot wait without reaping here: elsewhere than on Linux that wait
// also ends when a child is only stopped.
func AwaitExit(int) error { return errors.ErrUnsupported }
