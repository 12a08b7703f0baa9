//go:build !linux

package gateway

import (
	"context"
	"net"
)

// canTell reports whether isOurs works here.
func canTell(context.Context, net.Listener) bool { return false }

func isOurs(net.Addr, net.Addr) bool { return false }
