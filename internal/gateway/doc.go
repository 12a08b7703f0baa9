// Package gateway runs a command behind a proxy that charges its calls.
package gateway
