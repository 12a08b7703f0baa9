// Package terminaltest is a test kit: pseudo terminals, on Linux.
package terminaltest
