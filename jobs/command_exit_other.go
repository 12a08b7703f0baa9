//go:build !linux

package jobs

import "errors"

// awaitExit cannot wait without reaping here: elsewhere than on Linux that wait
// also ends when a child is only stopped.
func awaitExit(int) error { return errors.ErrUnsupported }
