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
)

// client makes the client that the mode asks for.
func (t target) client(timeout time.Duration) redis.UniversalClient {
	var secure *tls.Config
	if t.tls {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch t.mode {
	case sentinel:
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: t.master, SentinelAddrs: t.addresses, Username: t.username, Password: t.password, DB: t.db,
			Protocol: protocol, MaxRetries: noRetries, DialerRetries: oneDial, DialTimeout: dialTimeout,
			ReadTimeout: timeout + slack, WriteTimeout: timeout + slack, ContextTimeoutEnabled: true,
			PoolSize: poolSize, PoolTimeout: timeout, ConnMaxIdleTime: idleTime, TLSConfig: secure,
			DisableIdentity: true,
		})
	case cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: t.addresses, Username: t.username, Password: t.password,
			Protocol: protocol, MaxRetries: noRetries, MaxRedirects: maxRedirects, DialerRetries: oneDial, DialTimeout: dialTimeout,
			ReadTimeout: timeout + slack, WriteTimeout: timeout + slack, ContextTimeoutEnabled: true,
			PoolSize: poolSize, PoolTimeout: timeout, ConnMaxIdleTime: idleTime, TLSConfig: secure,
			DisableIdentity: true, MaintNotificationsConfig: quiet,
		})
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
			PoolSize: poolSize, PoolTimeout: timeout, ConnMaxIdleTime: idleTime, TLSConfig: secure,
			DisableIdentity: true,
		})
	}
	network := "tcp"
	if t.unix {
		network = "unix"
	}
	return redis.NewClient(&redis.Options{
		Network: network, Addr: t.addresses[0], Username: t.username, Password: t.password, DB: t.db,
		Protocol: protocol, MaxRetries: noRetries, DialerRetries: oneDial, DialTimeout: dialTimeout,
		ReadTimeout: timeout + slack, WriteTimeout: timeout + slack, ContextTimeoutEnabled: true,
		PoolSize: poolSize, PoolTimeout: timeout, ConnMaxIdleTime: idleTime, TLSConfig: secure,
		DisableIdentity: true, MaintNotificationsConfig: quiet,
	})
}

// Sharded reports whether budgets stand on servers that go away on their own.
func (s *Store) Sharded() bool {
	switch s.client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		return true
	}
	return false
}
