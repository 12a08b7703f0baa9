// Package proc runs commands: each in a process group of its own, so that the processes
// it starts end with it, and with its output read line by line; or one in the foreground.
package proc
