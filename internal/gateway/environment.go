package gateway

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// environment has the variables of a command by name.
type environment map[string]string

// newEnvironment reads the form of os.Environ.
func newEnvironment(entries []string) environment {
	e := environment{}
	for _, entry := range slices.Backward(entries) { // the first of two counts
		name, value, _ := strings.Cut(entry, "=")
		e[name] = value
	}
	return e
}

// set gives variables a value, or removes them if that is empty.
func (e environment) set(value string, names ...string) {
	for _, name := range names {
		e[name] = value
		if value == "" {
			delete(e, name)
		}
	}
}

// neverProxied are this machine, and where clouds give a machine its credentials.
var neverProxied = []string{"localhost", "127.0.0.1", "::1", "169.254.169.254", "169.254.170.2", "fd00:ec2::254", "metadata.google.internal"}

// exemptions divides the entries of NO_PROXY, in both cases since programs differ in which they
// read, into those that the command keeps, with neverProxied, and those that cover a metered host.
func exemptions(env environment, hosts []string) (kept, removed []string) {
	isSeparator := func(r rune) bool { return strings.ContainsRune(", \t", r) }
	entries := strings.FieldsFunc(env["NO_PROXY"]+","+env["no_proxy"], isSeparator)
	for i, entry := range slices.Concat(entries, neverProxied) {
		covers := slices.ContainsFunc(hosts, func(host string) bool { return exempts(entry, host) })
		if !covers && !slices.Contains(kept, entry) {
			kept = append(kept, entry)
		}
		if covers && i < len(entries) && !slices.Contains(removed, entry) {
			removed = append(removed, entry)
		}
	}
	return kept, removed
}

// exempts reports whether some program takes an entry of NO_PROXY to cover a host, or any host
// that it stands for. requests compares ends of words: "example.com" covers "myexample.com", too.
func exempts(entry, host string) bool {
	if _, err := netip.ParsePrefix(entry); err == nil {
		return false
	}
	name := strings.ToLower(entry)
	if before, _, err := net.SplitHostPort(name); err == nil {
		name = before
	}
	name = strings.Trim(name, "*.[]")
	below, isPattern := strings.CutPrefix(host, "*")
	return strings.HasSuffix(below, name) || isPattern && strings.HasSuffix(name, below)
}
