package jobs

import "reflect"

// Same reports whether two jobs, be they of two readings of a configuration, do the
// same at the same times.
func Same(a, b *Job) bool {
	if a.counts() != b.counts() {
		return false
	}
	// A schedule holds its zone as it was read, which is not the same twice.
	x, y := *a, *b
	x.Schedule, y.Schedule = nil, nil
	return reflect.DeepEqual(x, y)
}
