package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"strings"
	"sync/atomic"

	"github.com/quotactl/quotactl/budget/budgethttp"
)

// readFirst is how much of a request's body is read before it is charged, in bytes. A server
// that answers before it has read such a body disturbs neither side.
const readFirst = 64 << 10

// call is a request on its way through the handler.
type call struct {
	owned
	target
	method  string
	budget  string                               // the budget's name; empty: it is not charged
	foreign bool                                 // it carries none of the budget's known secrets
	id      string                               // of the charge that the program has made
	sent    bool                                 // to the upstream
	noted   func(status int, header http.Header) // takes the answer of a call that is observed; nil: it is not
	flows   *flow                                // the body, if it flows while the answer does; nil: it was read
	admit   func()                               // prepares the program's connection for that
}

// shown is the call as a message may show it: with its path, which may have a secret, up to the first
// part that is longer than a version.
func (c *call) shown() string {
	text, rest := c.method+" "+c.authority(), strings.TrimPrefix(c.path, "/")
	for more := true; more; {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		if text += "/" + wordOr(part); more && len(part) > len("v1.1") {
			return text + "/…"
		}
	}
	return text
}

// flow is a request's body that is read while the answer is written. The server closes it.
type flow struct {
	io.Reader
	ended atomic.Bool
}

// Close implements io.Closer.
func (*flow) Close() error { return nil }

// Read implements io.Reader.
func (f *flow) Read(b []byte) (int, error) {
	n, err := f.Reader.Read(b)
	if err != nil {
		f.ended.Store(true)
	}
	return n, err
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// handler meters the requests of opened connections.
type handler struct {
	*Gateway
	proxy *httputil.ReverseProxy
}

func newHandler(g *Gateway) *handler {
	h := &handler{Gateway: g}
	// A FlushInterval below 0 would send the header of an answer without a body apart from its
	// end, which gRPC takes for a broken stream.
	h.proxy = &httputil.ReverseProxy{
		Rewrite: g.rewrite, Transport: h, ModifyResponse: h.answered, ErrorHandler: h.failed, ErrorLog: g.server.ErrorLog,
	}
	return h
}

// serve serves a request for a target.
func (h *handler) serve(w http.ResponseWriter, req *http.Request, t target) {
	if !h.busy.TryRLock() { // the gateway closes
		panic(http.ErrAbortHandler)
	}
	defer h.busy.RUnlock()
	switch {
	case req.Host != "" && !t.isNamed(req.Host):
		h.refuseWith(w, req, h.broken(t.host, http.StatusMisdirectedRequest, "the connection was opened for "+t.host+", and the request is for another host"))
		return
	case req.Method == http.MethodTrace || req.Method == http.MethodConnect:
		h.refuseWith(w, req, h.broken(t.host, http.StatusMethodNotAllowed, "this method is not passed on"))
		return
	case !strings.HasPrefix(req.URL.Path+"/", "/") && req.RequestURI != "*": // a whole address may have no path
		h.refuseWith(w, req, h.broken(t.host, http.StatusBadRequest, "the path does not begin with a slash"))
		return
	}
	c := &call{owned: h.owners.of(req, t.host, t.port), target: t, method: req.Method}
	req = req.WithContext(context.WithValue(req.Context(), callKey{}, c))
	switch {
	case !h.owners.opens(t.host, t.port):
		h.tally.tunnel(t.authority(), h.owners.tunnels(t.host))
		c.owned = owned{}
	case h.options.Observe != nil:
		h.observe(c, req)
	case c.upstream == nil:
		h.tally.passed(t.host, c.path)
	case h.isMisplaced(w, c, req):
		return
	case h.isCharged(c, req):
	default:
		var err error
		if c.budget = h.meters.session(c.owned, req); c.budget == "" {
			c.budget, c.foreign, err = h.credentials.of(c.owned, req)
		}
		if err != nil {
			h.refuseWith(w, req, h.misconfigured(err.Error()))
			return
		}
	}
	whole, err := readBody(req)
	if err != nil {
		h.refuseWith(w, req, h.broken(t.host, http.StatusBadRequest, "the body of the request ended early"))
		return
	}
	if !whole && req.ProtoMajor == 1 {
		c.flows = &flow{Reader: req.Body}
		req.Body = c.flows
		c.admit = func() { _ = http.NewResponseController(w).EnableFullDuplex() } // every HTTP/1 connection can
	}
	w.Header()["Content-Type"] = nil // else the server guesses one where the upstream states none
	h.proxy.ServeHTTP(only100{w, req.Context(), h.keptOf(c)}, req)
}

// readBody reads a small body, and reports whether that is all of it. What is larger, or has no
// known length on HTTP/2, where a program may wait for the answer's beginning before it sends
// on, flows while the answer does.
func readBody(req *http.Request) (whole bool, err error) {
	waits := strings.EqualFold(req.Header.Get("Expect"), "100-continue")
	known := req.ContentLength >= 0 && req.ContentLength <= readFirst
	if req.Body == http.NoBody {
		return true, nil
	}
	if waits || !known && (req.ProtoMajor > 1 || req.ContentLength > readFirst) {
		return false, nil
	}
	text, err := io.ReadAll(io.LimitReader(req.Body, readFirst))
	if err != nil {
		return false, err
	}
	if known || len(text) < readFirst {
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
		req.Body = io.NopCloser(bytes.NewReader(text))
		return true, nil
	}
	req.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), req.Body), req.Body}
	return false, nil
}

// only100 leaves it to the server to send 100 Continue, which it does when the body is read:
// else it would also pass on the upstream's.
type only100 struct {
	http.ResponseWriter
	ctx  context.Context // of the request: it ends with the gateway, too
	kept *keptSecrets
}

// WriteHeader implements http.ResponseWriter.
func (o only100) WriteHeader(status int) {
	if status < http.StatusOK {
		o.kept.mask(o.Header())
	}
	if status != http.StatusContinue {
		o.ResponseWriter.WriteHeader(status)
	}
}

// Hijack implements http.Hijacker. What the program has sent after its request to change the protocol
// is read again, since httputil.ReverseProxy reads the connection alone.
func (o only100) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(o.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	context.AfterFunc(o.ctx, func() { closeAll(conn) }) // the server does not close it any more
	ahead, _ := buffered.Peek(buffered.Reader.Buffered())
	return &peeked{Conn: conn, reader: io.MultiReader(bytes.NewReader(bytes.Clone(ahead)), conn)}, buffered, nil
}

// Unwrap is for http.ResponseController.
func (o only100) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// rewrite addresses a request to its upstream, and leaves all else as the program sent it.
func (g *Gateway) rewrite(r *httputil.ProxyRequest) {
	t := callOf(r.In.Context()).target
	out := r.Out
	out.URL.Scheme, out.URL.Host, out.Host = t.scheme, t.authority(), r.In.Host
	if out.Host == "" {
		out.Host = t.authority()
	}
	raw, query, hasQuery := strings.Cut(requestTarget(r.In), "?")
	proxy, _ := g.wire.proxy(out.URL) // RoundTrip returns the error
	switch {
	case t.scheme == "http" && proxy != nil && strings.HasPrefix(raw, "/"): // which is asked for the whole address
		out.URL.Opaque = "//" + out.URL.Host + raw
	case strings.HasPrefix(raw, "/") && !strings.HasPrefix(raw, "//"):
		out.URL.Opaque = raw // else it is escaped anew
	}
	out.URL.RawQuery, out.URL.ForceQuery = query, hasQuery && query == ""
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, sent := r.In.Header[name]; sent {
			out.Header[name] = values
		}
	}
	if strings.EqualFold(out.Header.Get("Upgrade"), "h2c") {
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
		out.Header.Del("Http2-Settings")
	}
}

// requestTarget is the path and query as they were sent.
func requestTarget(req *http.Request) string {
	scheme, rest, found := strings.Cut(req.RequestURI, "://")
	if !found || strings.Contains(scheme, "/") {
		return req.RequestURI
	}
	slash := strings.IndexAny(rest+"/", "/?")
	return "/" + strings.TrimPrefix(rest[slash:], "/")
}

// RoundTrip implements http.RoundTripper: it charges and sends what rewrite has addressed.
func (h *handler) RoundTrip(req *http.Request) (*http.Response, error) {
	c := callOf(req.Context())
	if c.budget == "" {
		return sender{h.Gateway}.RoundTrip(req)
	}
	metered, err := h.meters.of(c.budget)
	if err != nil {
		return nil, &notCharged{err}
	}
	options := metered.Options()
	options.Operation, options.Foreign = c.operation, c.foreign
	return metered.RoundTrip(req.WithContext(budgethttp.With(req.Context(), options)))
}

// notCharged is why a call could not be charged.
type notCharged struct{ error }

// Unwrap returns the cause.
func (e *notCharged) Unwrap() error { return e.error }

// sender sends what is admitted.
type sender struct{ *Gateway }

// RoundTrip implements http.RoundTripper. If a request that the program charged was provably
// not sent, the program may send it again by the same charge.
func (s sender) RoundTrip(req *http.Request) (*http.Response, error) {
	c := callOf(req.Context())
	if c.admit != nil {
		c.admit()
	}
	req.Header.Del(budgethttp.ChargedHeader) // a meter around this one counts by another configuration
	connected := false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}
	by := cmp.Or(c.apart, s.wire.usual)
	resp, err := by.RoundTrip(s.keptOf(c).putInto(c, req.WithContext(httptrace.WithClientTrace(req.Context(), trace))))
	c.sent = connected
	switch {
	case c.noted == nil || !connected:
	case err != nil:
		c.noted(0, nil)
	default:
		c.noted(resp.StatusCode, resp.Header)
	}
	switch {
	case err != nil && !connected:
		s.charged.Remove(c.id)
	case c.id != "":
		s.tally.count(func(all *Tally) { all.Own++ })
	case c.budget != "":
		s.tally.count(func(all *Tally) { all.of(c.budget).Calls++ })
	}
	return resp, err
}

// answered prepares an answer for the program.
func (h *handler) answered(resp *http.Response) error {
	resp.Header.Del("Alt-Svc") // HTTP/3 would go past the proxy
	c := callOf(resp.Request.Context())
	h.keptOf(c).maskAnswer(resp)
	if c.flows != nil && !c.flows.ended.Load() {
		resp.Header.Set("Connection", "close") // what is left of the body would be read as a request
	}
	return nil
}

// failed answers a request that got no answer.
func (h *handler) failed(w http.ResponseWriter, req *http.Request, err error) {
	c := callOf(req.Context())
	if req.Context().Err() != nil || errors.Is(err, context.Canceled) { // the program is gone
		if c.budget != "" && !c.sent {
			h.tally.count(func(all *Tally) { all.of(c.budget).GaveUp++ })
		}
		panic(http.ErrAbortHandler)
	}
	h.refuseWith(w, req, h.refusalOf(c, err))
}
