package door

import (
	"net"
	"net/http"
	"strings"

	"github.com/quotactl/quotactl/internal/serve"
)

// foreign says why a request is refused that another web site may have made, or that came under
// a foreign name; "" if it is let in.
//
// A site can make a browser send any GET and the POST of a form, with cookies unless they are
// SameSite=Strict. Its own name can resolve to this machine, and then it is the same site to the
// browser: Host shows that. Browsers say in Sec-Fetch-Site who began a request, and in Origin
// whose page sends a POST. Older ones send only Origin.
func (d *Door) foreign(r *http.Request) string {
	if detail := d.wrongHost(r); detail != "" {
		return detail
	}
	origins, sites := r.Header["Origin"], r.Header["Sec-Fetch-Site"]
	if len(origins) > 1 || len(sites) > 1 {
		return "the request has several Origin or Sec-Fetch-Site headers"
	}
	if len(origins) == 1 && !d.ownOrigin(origins[0], r) {
		return "the request has the Origin of another web site"
	}
	site := ""
	if len(sites) == 1 {
		site = sites[0]
	}
	switch {
	case !reading(r.Method) && site == "" && len(origins) == 0:
		return "the request has neither Origin nor Sec-Fetch-Site, so it may come from another web site: use a browser"
	case !reading(r.Method) && site != "" && site != "same-origin",
		site != "" && site != "same-origin" && site != "none" && !d.navigates(r):
		return "another web site has sent the request: only links to pages are served"
	}
	return ""
}

// navigates reports whether a request opens a page as a document of its own, as a link does; it
// is not for a frame, an image or a script.
func (d *Door) navigates(r *http.Request) bool {
	path := r.URL.Path
	isPage := path == pathSignIn || d.o.Site.Serves(path) && !IsStream(path) && !strings.HasPrefix(path, pathAssets)
	return r.Method == http.MethodGet && isPage && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// ownOrigin reports whether an Origin is that of the daemon's own pages. On a Unix socket
// another server is in between, which may serve TLS.
func (d *Door) ownOrigin(origin string, r *http.Request) bool {
	scheme, host, found := strings.Cut(origin, "://")
	isOwn := scheme == "https" && (r.TLS != nil || d.onSocket()) || scheme == "http" && r.TLS == nil
	return found && isOwn && host != "" && strings.EqualFold(host, r.Host)
}

// onSocket reports whether the listener is a Unix socket: all others have a loopback address or
// TLS.
func (d *Door) onSocket() bool { return !d.o.Loopback && d.o.Certificate == nil }

// wrongHost says why a request's Host is refused; "" if it is not.
func (d *Door) wrongHost(r *http.Request) string {
	switch {
	case d.o.Loopback:
		if !serve.LoopbackName(r.Host) {
			return serve.WrongHost
		}
	case d.o.Certificate != nil:
		name := hostName(r.Host)
		if d.o.Certificate.VerifyHostname(name) != nil && !isLocalAddress(name, r) {
			return "the certificate is not valid for the Host header's name: use a name of the certificate, or the listening address's IP"
		}
	}
	return ""
}

// hostName is a Host without its port and brackets.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// isLocalAddress reports whether a name is the IP at which the connection came in. Nobody can
// make a name of their own resolve to that IP and have it be in Host.
func isLocalAddress(name string, r *http.Request) bool {
	ip := net.ParseIP(name)
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ip != nil && ok && at.IP.Equal(ip)
}
