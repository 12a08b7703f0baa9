package redisstore

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/driver"
)

// mode is how several servers work together. The URL's scheme always states it: guessed,
// two addresses would silently mean a cluster.
type mode int

const (
	single mode = iota
	sentinel
	cluster
	ring
)

// target is a parsed URL.
type target struct {
	mode               mode
	tls, unix          bool
	addresses          []string
	master             string
	username, password string
	db                 int
}

// Check reports whether [Open] accepts a URL. The error wraps
// budget.ErrStoreConfig and never holds a password.
func Check(url string) error {
	_, err := parseURL(url)
	return err
}

// parseURL reads a URL. Its authority may list several hosts, which net/url does not
// accept, so parseURL splits that part itself.
func parseURL(raw string) (target, error) {
	fail := func(format string, args ...any) (target, error) {
		return target{}, fmt.Errorf("%w: store URL: %s", driver.ErrStoreConfig, fmt.Sprintf(format, args...))
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return fail("it has no scheme: write redis://HOST:PORT/DB")
	}
	var t target
	port := "6379"
	switch scheme {
	case "redis":
	case "rediss":
		t.tls = true
	case "unix":
		t.unix = true
	case "redis+sentinel":
		t.mode, port = sentinel, "26379"
	case "redis+cluster":
		t.mode = cluster
	case "redis+ring":
		t.mode = ring
	default:
		return fail("unknown scheme: use redis, rediss, unix, redis+sentinel, redis+cluster or redis+ring")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user, password, _ := strings.Cut(authority[:at], ":")
		var userErr, passwordErr error
		t.username, userErr = url.PathUnescape(user)
		t.password, passwordErr = url.PathUnescape(password)
		if userErr != nil || passwordErr != nil {
			return fail("user or password is not percent-encoded: write %%40 for @")
		}
		authority = authority[at+1:]
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return fail("the part after ? is not a query: write ?db=1")
	}
	for name := range values {
		if name != "db" {
			return fail("unknown parameter: only db is known; write / and ? in a password as %%2F and %%3F")
		}
	}
	db := values.Get("db")
	switch {
	case t.unix:
		if authority != "" || path == "" {
			return fail("unix needs an absolute path: write unix:///path/to/socket")
		}
		t.addresses = []string{"/" + path}
	case t.mode == sentinel:
		if path == "" || strings.Contains(path, "/") {
			return fail("redis+sentinel needs the master's name: write redis+sentinel://HOST,HOST/NAME")
		}
		t.master = path
	case path != "" && t.mode == single && db == "":
		db = path
	case path != "":
		return fail("the part after the host is not a database: write ?db=N, or /N with redis://")
	}
	if db != "" {
		if t.mode == cluster {
			return fail("a cluster has no databases: remove db")
		}
		if t.db, err = strconv.Atoi(db); err != nil || t.db < 0 {
			return fail("the database is not a number: use 0 or more; write / and ? in a password as %%2F and %%3F")
		}
	}
	if !t.unix {
		for _, host := range strings.Split(authority, ",") {
			address, err := hostPort(host, port)
			if err != nil {
				return fail("%v", err)
			}
			t.addresses = append(t.addresses, address)
		}
		if t.mode == single && len(t.addresses) > 1 {
			return fail("several hosts: say how they work together with redis+sentinel, redis+cluster or redis+ring")
		}
	}
	return t, nil
}

// hostPort adds the default port to a host without one.
func hostPort(host, port string) (string, error) {
	u, err := url.Parse("redis://" + host)
	if err != nil || u.Hostname() == "" || u.User != nil {
		return "", errors.New("a host is missing or invalid: write HOST or HOST:PORT; write @, / and ? in a password as %40, %2F and %3F")
	}
	if u.Port() != "" {
		port = u.Port()
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", errors.New("a port is wrong: use 1 to 65535")
	}
	name := u.Hostname()
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	return name + ":" + port, nil
}
