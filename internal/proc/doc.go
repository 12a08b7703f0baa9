// Package proc runs commands, each in a process group of its own, so that the processes
// it starts end with it. It reads their output line by line.
package proc
