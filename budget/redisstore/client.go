package redisstore

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The options of the client that matter, each set on purpose.
const (
	// Retries are the store's: the library would send a charge again with no
	// regard to its deadline.
	noRetries = -1
	// A refused connection is known at once; trying again is the store's.
	oneDial = 1
	// Connecting may be slower than a decision, over TLS or a name service.
	dialTimeout = time.Second
	// Charges of one budget go together, so few connections carry many calls.
	poolSize = 20
	// A connection that idled longer than most middleboxes keep it is dropped.
	idleTime = 4 * time.Minute
	// RESP2 has no push messages, which nothing here wants.
	protocol = 2
	// Every call's context ends within the store's timeout, and ends its waits
	// (ContextTimeoutEnabled): that end is what scripts are told, so that nothing
	// is charged past it. The library's own timeouts must come later.
	slack = time.Second
	// Redirections follow a moved slot or a new master; they send nothing twice.
	maxRedirects = 3
	// A sentinel is asked by one look at a time; one that hangs by two or three.
	sentinelPool = 4
	// What is sent together needs no connections of its own.
	noPipelines = -1
)

// client sends commands to the servers of a URL.
type client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Close() error
}

// options are those for one server.
func (t target) options(timeout time.Duration, network, address string) *redis.Options {
	return &redis.Options{
		Network: network, Addr: address, Username: t.username, Password: t.password, DB: t.db,
		Protocol: protocol, MaxRetries: noRetries, DialerRetries: oneDial, DialTimeout: dialTimeout,
		ReadTimeout: timeout + slack, WriteTimeout: timeout + slack, ContextTimeoutEnabled: true,
		PoolSize: poolSize, PoolTimeout: timeout, ConnMaxIdleTime: idleTime, TLSConfig: t.secure(),
		DisableIdentity: true, MaintNotificationsConfig: quietly(),
	}
}

// secure is how connections are encrypted; nil where they are not.
func (t target) secure() *tls.Config {
	if !t.tls {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}
}

// quietly wants no notices of maintenance.
func quietly() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// client makes the client that the mode asks for, and what finds its servers where
// they may change places; nil where they may not.
func (t target) client(timeout time.Duration) (client, *follower) {
	switch t.mode {
	case sentinel:
		s := newSentinels(t.master, t.addresses, func(address string) *redis.Options { return t.options(timeout, "tcp", address) }, func(address string) *redis.Options {
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
			Addrs: t.addresses, Username: t.username, Password: t.password,
			Protocol: protocol, MaxRetries: noRetries, MaxRedirects: maxRedirects, DialerRetries: oneDial, DialTimeout: dialTimeout,
			ReadTimeout: timeout + slack, WriteTimeout: timeout + slack, ContextTimeoutEnabled: true,
			PoolSize: poolSize, PoolTimeout: timeout, ConnMaxIdleTime: idleTime, TLSConfig: t.secure(),
			DisableIdentity: true, MaintNotificationsConfig: quietly(),
		})
		return c, newFollower(0, func(ctx context.Context) { reload(ctx, c) })
	case ring:
		shards := map[string]string{}
		for _, address := range t.addresses {
			shards[address] = address
		}
		return redis.NewRing(&redis.RingOptions{
			Addrs: shards, Username: t.username, Password: t.password, DB: t.db,
			// A shard that is down stays in the ring, or its keys would move to
			// another one and find a fresh budget there.
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
	return redis.NewClient(t.options(timeout, network, t.addresses[0])), nil
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
