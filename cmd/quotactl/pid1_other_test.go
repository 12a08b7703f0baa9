//go:build !linux

package main

// programs are what the tests may start by name.
func programs() map[string]func() {
	return map[string]func(){"quotactl": main, "quotactl-then": mainThen}
}
