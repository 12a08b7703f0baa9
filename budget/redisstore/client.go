package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options of the client library.
const (
	// The store retries itself: the library would send a charge again after its
	// deadline.
	noRetries = -1
	// The store learns of a refused connection at once, and retries itself.
	oneDial = 1
	// Charges of one budget go together, so a few connections carry many calls.
	poolSize = 20
	// Most middleboxes keep an idle connection at least this long.
	idleTime = 4 * time.Minute
	// RESP2 has no push messages; the store needs none.
	protocol = 2
	// Every call's context ends within the store's timeout, and ends the library's waits
	// (ContextTimeoutEnabled). Scripts get that end as their deadline, so they charge
	// nothing past it. The library's own timeouts must end later, by this much.
	slack = time.Second
	// The library follows redirections to a moved slot or a new master; these send
	// nothing twice.
	maxRedirects = 3
	// One look at a time asks a sentinel; if it hangs, two or three looks do.
	sentinelPool = 4
	// Pipelines use the ordinary connections.
	noPipelines = -1
)

// dialTimeout bounds connecting, which may take longer than a decision, because of TLS or a name
// lookup. Tests give it more.
var dialTimeout = time.Second

// client sends commands to the servers of a URL.
type client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Close() error
}

// options are the library's options for one server.
func (t target) options(timeout time.Duration, network, address string, pace *pace) *redis.Options {
	return &redis.Options{
		Network: network, Addr: address, Dialer: t.greets(pace),
		Protocol: protocol, MaxRetries: noRetries, DialerRetries: oneDial, DialTimeout: dialTimeout,
		ReadTimeout: firstTimeouts*timeout + doctorTime, WriteTimeout: timeout + slack, ContextTimeoutEnabled: true,
		PoolSize: poolSize, PoolTimeout: timeout, ConnMaxIdleTime: idleTime, TLSConfig: t.secure(),
		DisableIdentity: true, MaintNotificationsConfig: quietly(),
	}
}

// greets is the dialer, which sends the user, the password and the database, so that the library does
// not know them.
func (t target) greets(pace *pace) func(ctx context.Context, network, address string) (net.Conn, error) {
	return t.dialer(&redis.Options{DialTimeout: dialTimeout, TLSConfig: t.secure()}, pace.connected)
}

// secure is the TLS configuration; nil without TLS.
func (t target) secure() *tls.Config {
	if !t.tls {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}
}

// quietly disables notices of maintenance.
func quietly() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// client makes the client for the mode. If a replica can become the master in that mode,
// it also returns a follower, else nil.
func (t target) client(timeout time.Duration, pace *pace) (client, *follower) {
	switch t.mode {
	case sentinel:
		s := newSentinels(t.master, t.addresses, func(address string) *redis.Options { return t.options(timeout, "tcp", address, pace) }, func(address string) *redis.Options {
			return &redis.Options{
				Addr: address, Protocol: protocol, MaxRetries: noRetries, DialerRetries: oneDial, DialTimeout: dialTimeout,
				ReadTimeout: lookTime, WriteTimeout: lookTime, ContextTimeoutEnabled: true,
				PoolSize: sentinelPool, PoolTimeout: lookTime, ConnMaxIdleTime: idleTime, PipelinePoolSize: noPipelines,
				DisableIdentity: true, MaintNotificationsConfig: quietly(),
			}
		})
		return s, s.follow
	case cluster:
		c := newCluster(&redis.ClusterOptions{
			Addrs: t.addresses, Dialer: t.greets(pace),
			Protocol: protocol, MaxRetries: noRetries, MaxRedirects: maxRedirects, DialerRetries: oneDial, DialTimeout: dialTimeout,
			ReadTimeout: timeout + slack, WriteTimeout: timeout + slack, ContextTimeoutEnabled: true,
			PoolSize: poolSize, PoolTimeout: timeout, ConnMaxIdleTime: idleTime, TLSConfig: t.secure(),
			DisableIdentity: true, MaintNotificationsConfig: quietly(),
			// To route a command, the library would ask a server first what commands there are, for
			// longer than a call lasts. Each command here has a key, whose slot says where it goes.
			DisableRoutingPolicies: true,
		})
		return c, newFollower(0, func(ctx context.Context) { reload(ctx, c) })
	case ring:
		shards := map[string]string{}
		for _, address := range t.addresses {
			shards[address] = address
		}
		return redis.NewRing(&redis.RingOptions{
			Addrs: shards, Dialer: t.greets(pace),
			// A shard that is down stays in the ring. Otherwise its keys would move to
			// another shard and find an unspent budget there.
			HeartbeatFn: func(context.Context, *redis.Client) bool { return true },
			Protocol:    protocol, MaxRetries: noRetries, DialerRetries: oneDial, DialTimeout: dialTimeout,
			ReadTimeout: timeout + slack, WriteTimeout: timeout + slack, ContextTimeoutEnabled: true,
			PoolSize: poolSize, PoolTimeout: timeout, ConnMaxIdleTime: idleTime, TLSConfig: t.secure(),
			DisableIdentity: true,
		}), nil
	}
	network := "tcp"
	if t.unix {
		network = "unix"
	}
	return redis.NewClient(t.options(timeout, network, t.addresses[0], pace)), nil
}

// Sharded reports whether budgets are on several servers, each of which can fail by
// itself.
func (s *Store) Sharded() bool {
	switch s.client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		return true
	}
	return false
}
