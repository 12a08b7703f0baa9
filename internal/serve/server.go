package serve

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/answer"
)

// The default bounds of a Server.
const (
	DefaultUnderWay = 1024
	DefaultWaiting  = 512
	DefaultOpen     = 4096
	// MaxHeaderFields is how many header fields a request may have.
	MaxHeaderFields = 64
)

// Options configure a Server.
type Options struct {
	// Budgets are the budgets of the configuration. They are open and stay open.
	Budgets []*budget.Budget
	// Open opens another budget by its name, on the same store. It returns
	// budget.ErrUnknownBudget if no credential "*" admits the name. It must not
	// block: the Server calls it under a lock.
	Open func(name string) (*budget.Budget, error)
	// Token, if set, is required in each request, as Authorization: Bearer.
	Token string
	// ReadToken, if set, is another token that may look and not spend. It needs a Token.
	ReadToken string
	// Overview answers GET /v1/overview for the budgets named, or all of them for no name; nil:
	// there is no such path. The error is budget.ErrUnknownBudget for an unknown name.
	Overview func(ctx context.Context, names []string) (answer.Overview, error)
	// Loopback: the listener has a loopback address. Requests whose Host does not name
	// this machine are then refused, because a web page can send them.
	Loopback bool
	// UnderWay is how many requests may be under way at once, and Waiting how many of
	// them may wait for units; 0: the defaults.
	UnderWay, Waiting int64
	// Log gets a line for each refused charge; nil: no log.
	Log *slog.Logger
	// Leased, if set, is called for each request that took units from a lease. It must not
	// block.
	Leased func(budget, operation string, units int64)
	// MaxOpen is how many budgets of credentials "*" stay open while no request uses
	// them; 0: DefaultOpen.
	MaxOpen int
}

// Server is an http.Handler for the paths under /v1/. It is safe for concurrent
// use.
type Server struct {
	access   access
	overview func(ctx context.Context, names []string) (answer.Overview, error)
	budgets  *budgetCache
	underWay slots
	waiting  slots
	leases   leases
	leased   func(budget, operation string, units int64)
	log      *slog.Logger
	stopping context.Context
	stop     context.CancelFunc
}

// New makes a Server.
func New(o Options) *Server {
	o.UnderWay, o.Waiting, o.MaxOpen = orElse(o.UnderWay, DefaultUnderWay), orElse(o.Waiting, DefaultWaiting), orElse(o.MaxOpen, DefaultOpen)
	s := &Server{access: newAccess(o), overview: o.Overview, budgets: newBudgetCache(o), underWay: slots{most: o.UnderWay}, waiting: slots{most: o.Waiting}, log: o.Log, leased: o.Leased}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.leased == nil {
		s.leased = func(string, string, int64) {}
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	return s
}

func orElse[N int | int64](n, other N) N {
	if n == 0 {
		return other
	}
	return n
}

// Stop ends all waits for units, each with its refusal, so that the requests under way
// end soon, and begins to close the leases. The Server still serves further requests.
func (s *Server) Stop() {
	s.stop()
	s.EndLeases()
}

// slots bounds how many requests do something at once.
type slots struct {
	most  int64
	taken atomic.Int64
}

func (s *slots) take() bool {
	if s.taken.Add(1) > s.most {
		s.taken.Add(-1)
		return false
	}
	return true
}

func (s *slots) giveBack() { s.taken.Add(-1) }

// route is what a path does.
type route struct {
	method string
	least  Right // that it takes
	serve  func(*Server, http.ResponseWriter, *http.Request)
}

// routes maps each path to its route.
var routes = map[string]route{
	"/v1/charge":       {http.MethodPost, MaySpend, (*Server).charge},
	"/v1/settle":       {http.MethodPost, MaySpend, (*Server).settle},
	"/v1/release":      {http.MethodPost, MaySpend, (*Server).release},
	"/v1/status":       {http.MethodGet, MayLook, (*Server).status},
	"/v1/overview":     {http.MethodGet, MayLook, (*Server).serveOverview},
	"/v1/why":          {http.MethodGet, MayLook, (*Server).why},
	"/v1/openapi.json": {http.MethodGet, MayLook, (*Server).describe},
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.underWay.take() {
		refuse(w, problem{reason: "busy", detail: "too many requests are under way; try again in a moment"})
		return
	}
	defer s.underWay.giveBack()
	may := s.admit(w, r)
	if may == NoRight {
		return
	}
	fields := 0
	for _, values := range r.Header {
		fields += len(values)
	}
	if fields > MaxHeaderFields {
		refuse(w, problem{reason: "header_count", detail: "send at most 64 header fields"})
		return
	}
	to, known := routes[r.URL.Path]
	switch {
	case !known || r.URL.Path == pathOverview && s.overview == nil:
		refuse(w, problem{reason: "no_path", detail: "the paths are /v1/charge, /v1/settle, /v1/release, /v1/status, /v1/overview, /v1/why and /v1/openapi.json; a daemon also has /metrics, /healthz and /readyz"})
	case r.Method != to.method && (r.Method != http.MethodHead || to.method != http.MethodGet):
		methods := to.method
		if methods == http.MethodGet {
			methods = MethodsToRead
		}
		WrongMethod(w, methods)
	case may < to.least:
		refuse(w, problem{reason: "read_token", detail: "the read token may look and not spend: send the daemon's token for " + r.URL.Path})
	default:
		to.serve(s, w, r)
	}
}

// KeepPagesOut serves everybody except web pages.
func KeepPagesOut(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if detail := fromPage(r); detail != "" {
			Refuse(w, "not_local", detail)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Guard protects another handler as the Server's own paths that spend nothing are: it
// requires a token, if one is set, and refuses web pages.
func (s *Server) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.admit(w, r) != NoRight {
			next.ServeHTTP(w, r)
		}
	})
}

// admit is what a request may do. With NoRight it has refused the request.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) Right {
	may, reason, detail := s.access.right(r)
	if may == NoRight {
		refuse(w, problem{reason: reason, detail: detail})
	}
	return may
}

// jsonMedia is the media type of an answer.
var jsonMedia = []string{"application/json"}

//go:embed openapi.json
var description []byte

// describe serves the OpenAPI description.
func (s *Server) describe(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Content-Type"] = jsonMedia
	_, _ = w.Write(description) // an error means that the client has left
}

// buffers holds buffers for reading bodies and writing answers.
var buffers = sync.Pool{New: func() any { return new(buffer) }}

type buffer struct{ bytes []byte }

func takeBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) giveBack() { buffers.Put(b) }

// isJSON reports whether a Content-Type is application/json in UTF-8. It is required because a
// browser lets a web page send a request without one to any site.
func isJSON(media []string) bool {
	if len(media) != 1 {
		return false
	}
	if media[0] == jsonMedia[0] {
		return true
	}
	kind, parameters, err := mime.ParseMediaType(media[0])
	charset := strings.ToLower(parameters["charset"])
	return err == nil && kind == jsonMedia[0] && slices.Contains([]string{"", "utf-8", "utf8", "us-ascii"}, charset)
}

// isPlain reports whether a body is not compressed, or coded in another way.
func isPlain(encodings []string) bool {
	return !slices.ContainsFunc(encodings, func(one string) bool { return one != "" && !strings.EqualFold(one, "identity") })
}

// readBody reads a request's body into the buffer and parses it into q. It returns false
// if it has answered.
func (b *buffer) readBody(w http.ResponseWriter, r *http.Request, takes members, q *request) bool {
	if !isJSON(r.Header["Content-Type"]) {
		refuse(w, problem{reason: "media_type", detail: "send the body with Content-Type: application/json, in UTF-8"})
		return false
	}
	if !isPlain(r.Header["Content-Encoding"]) {
		refuse(w, problem{reason: "media_type", detail: "send the body without Content-Encoding"})
		return false
	}
	if err := b.read(http.MaxBytesReader(w, r.Body, MaxBody)); err != nil {
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			w.Header()["Connection"] = []string{"close"} // do not wait for the rest
			refuse(w, problem{reason: "body_size", detail: "send at most 64 KiB"})
		case errors.Is(err, os.ErrDeadlineExceeded):
			refuse(w, problem{reason: "body_time", detail: "send the whole body without a pause"})
		default:
			refuse(w, problem{reason: "invalid", detail: "the body could not be read: " + err.Error()})
		}
		return false
	}
	if err := q.read(b.bytes, takes); err != nil {
		refuse(w, problem{reason: "invalid", detail: err.Error()})
		return false
	}
	if len(q.faults) > 0 {
		q.judge()
		refuse(w, problem{reason: "invalid", detail: q.detail(), faults: q.faults})
		return false
	}
	return true
}

// read replaces the buffer's bytes with all that from has.
func (b *buffer) read(from io.Reader) error {
	if cap(b.bytes) == 0 {
		b.bytes = make([]byte, 0, 1024)
	}
	b.bytes = b.bytes[:0]
	for {
		if len(b.bytes) == cap(b.bytes) {
			b.bytes = append(b.bytes, 0)[:len(b.bytes)]
		}
		n, err := from.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// patient extends the listener's timeouts for a request that may take this long from
// now on.
func patient(w http.ResponseWriter, takes time.Duration) {
	if takes < shortest {
		return
	}
	end := time.Now().Add(takes + slack)
	to := http.NewResponseController(w)
	_ = to.SetReadDeadline(end)  // an error means that there is no connection to time out
	_ = to.SetWriteDeadline(end) // likewise
}

// Every listener gives a request at least shortest; slack is the time to write the
// answer.
const (
	shortest = 5 * time.Second
	slack    = 5 * time.Second
)
