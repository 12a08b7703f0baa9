package main

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/internal/redistest"
)

// redisServer is a real redis-server of the test's own that notes every command
// it is sent.
type redisServer struct {
	*redistest.Server
	password string
}

func startRedis(t *testing.T) *redisServer {
	t.Helper()
	return &redisServer{Server: redistest.Start(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000")}
}

// client looks into the server.
func (s *redisServer) client() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.Addr, Password: s.password, Protocol: 2, DisableIdentity: true, MaxRetries: -1,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience,
	})
}

// lock makes the server ask for a password. It is not among its arguments,
// which every user of the machine may read.
func (s *redisServer) lock(ctx context.Context, password string) error {
	client := s.client()
	defer func() { _ = client.Close() }()
	if err := client.ConfigSet(ctx, "requirepass", password).Err(); err != nil {
		return err
	}
	s.password = password
	return client.Do(ctx, "SLOWLOG", "RESET").Err() // it notes this command with what it was given
}
