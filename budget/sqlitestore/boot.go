package sqlitestore

// BootClock is the clock that nobody can set: the time since this machine's
// boot in µs, time asleep included, and the boot's id.
func BootClock() (id string, since int64, err error) {
	if id, err = bootID(); err == nil {
		since, err = bootClock()
	}
	return id, since, err
}
