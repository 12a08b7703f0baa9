//go:build !linux

package proc

import "errors"

// AwaitExit cannot wait without reaping here: on systems other than Linux that wait also
// returns when a child is only stopped.
func AwaitExit(int) error { return errors.ErrUnsupported }
