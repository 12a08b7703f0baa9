package config

import (
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// Host is a host of an upstream, as its hosts names it.
type Host struct {
	// Name is in small letters. It may begin with "*.", for any host below the rest.
	Name string
	Port int // 0: 443 and 80
}

// hostForm matches a host, with or without a port. Its labels are not checked further.
var hostForm = lazily(`^(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*(:[0-9]{1,5})?$`)

// parseHost reads a host, with or without a port. False if it is not one.
func parseHost(text string) (Host, bool) {
	name, digits, hasPort := strings.Cut(text, ":")
	if len(name) > 253 || !hostForm().MatchString(text) {
		return Host{}, false
	}
	port, _ := strconv.Atoi(digits) // at most five digits
	return Host{name, port}, hasPort == (port > 0) && port < 1<<16
}

// claims has the owner of each thing that only one may have.
type claims map[string]string

// take gives keys to an owner. If another has one of them, it adds an error that shows text.
func (c claims) take(node Node, text, owner string, keys ...string) {
	for _, key := range keys {
		if other, taken := c[key]; taken {
			node.Fail("%s = %q: %s has it already; keep one", node.Key(), text, other)
			return
		}
	}
	for _, key := range keys {
		c[key] = owner
	}
}

// readHosts reads hosts.
func readHosts(node Node, upstream string, taken claims) (list []Host) {
	texts, _ := node.SomeTexts()
	for _, text := range texts {
		host, ok := parseHost(text)
		switch {
		case !ok:
			node.Fail("hosts%s: it is not a host: write \"api.example.com\" in small letters, \"api.example.com:8443\" with a port, or \"*.example.com\" for any host below example.com; an address with a path belongs to base_url", showPattern(text))
			continue
		case net.ParseIP(host.Name) != nil:
			node.Fail("hosts = %q: certificates are made for names alone, so calls to an address cannot be opened: write a name, or base_url = \"http://…\"", text)
			continue
		case host.Port > 0 && host.Name[0] == '*':
			node.Fail("hosts = %q: a host that begins with \"*.\" has no port: take it out, or name each host", text)
			continue
		}
		ports := []string{":" + strconv.Itoa(host.Port)}
		if host.Port == 0 {
			ports = []string{":443", ":80"}
		}
		for i := range ports {
			ports[i] = host.Name + ports[i]
		}
		taken.take(node, text, "upstream "+upstream, ports...)
		list = append(list, host)
	}
	return list
}

// readBaseURLs reads base_url. The addresses have no port that their scheme implies, and no
// slash at the end. They are not shown if they are wrong, because they may contain a secret.
func readBaseURLs(node Node, upstream string, taken claims) (list []*url.URL) {
	texts, _ := node.SomeTexts()
	for _, text := range texts {
		address, err := url.Parse(text)
		if err != nil || address.Scheme != "https" && address.Scheme != "http" {
			node.Fail("base_url cannot be read: write \"https://api.example.com/v1\"")
			continue
		}
		host, ok := parseHost(address.Host)
		address.Path = strings.TrimSuffix(address.Path, "/")
		switch {
		case address.User != nil || strings.ContainsAny(text, "?#"):
			node.Fail("base_url contains a user, a query or a '#': take it out; what a request carries is said by secret")
		case !ok || host.Name[0] == '*':
			node.Fail("base_url names no host: begin it with \"https://api.example.com\", in small letters; hosts that begin with \"*.\" belong to hosts")
		case address.Path != "" && (address.Path != path.Clean(address.Path) || address.Path != address.EscapedPath()):
			node.Fail("base_url has a path with '//', '.', '..', '%%' or another character that is sent escaped: end it before that part")
		default:
			if host.Port == map[string]int{"https": 443, "http": 80}[address.Scheme] {
				address.Host = host.Name
			}
			taken.take(node, address.String(), "upstream "+upstream, address.String())
			list = append(list, address)
		}
	}
	return list
}

// readReach reads what a meter of programs needs to know of the upstream.
func (u *Upstream) readReach(t map[string]Node, taken *matcher) {
	u.Hosts = readHosts(t["hosts"], u.Name, taken.places)
	u.BaseURLs = readBaseURLs(t["base_url"], u.Name, taken.places)
	u.Secret = t["secret"].Secret()
	u.MethodOverride, _ = t["method_override"].Bool()
	u.Tunnel, _ = t["tunnel"].Bool()
	u.Final = readFinal(t["final"])
}
