package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

// quota is what the upstream grants in a Pacific day, limit what the
// configuration spends of it.
const (
	quota     = 10_000
	limit     = 9_500
	allowance = 200 // beyond that, while the store is out of reach
)

// listing is how many pages a listing has, since the jobs ask for one result a
// page: more than are left for the backfill of a day.
const listing = 1000

// network is the upstream and the way to it. A request that was sent arrives,
// whatever becomes of who sent it.
type network struct {
	month   month
	clock   *clock
	sandbox *sandbox.Server
	lease   time.Duration // the most that a request's reservation may be open
	under   sync.WaitGroup

	mu    sync.Mutex // guards all below
	pages []page
	lost  []loss
	taken []taken   // by the stranger
	told  time.Time // the time that the sandbox sees; zero: the true one

	guarantees map[int]*guarantee // by days
}

// page is what was answered to a request. Its number stands in the answer, so that
// it is known again where it was kept.
type page struct {
	day   int // on which the upstream counted it
	units int64
	path  string // of the request
	asked string // its q, which is the important job's name in that one's requests
	place string // the page of a listing that it is
	kept  bool   // a file has it
	of    int    // the day of the tick whose file has it
}

// loss is units that no page can stand for.
type loss struct {
	kind  lossKind
	day   int
	units int64
}

type lossKind int

const (
	failedRequest lossKind = iota // answered without a page, or not at all
	unheardAnswer                 // to a request that was given up
	astrideOfDays                 // of a request that was under way at a midnight
	keptAnswer                    // of the store, in an outage
)

// lose notes units that no page can stand for.
func (n *network) lose(kind lossKind, at time.Time, units int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = append(n.lost, loss{kind, n.month.day(at), units})
}

func newNetwork(t *testing.T, m month, c *clock) *network {
	t.Helper()
	n := &network{month: m, clock: c, guarantees: map[int]*guarantee{}}
	var err error
	n.sandbox, err = sandbox.New(sandbox.Config{
		Quota: quota, Results: listing, Seed: m.seed, Now: n.upstreamTime,
		FailRate: 0.001, DropRate: 0.0005, ReportUsage: m.stranger,
	})
	must.Do(t, err)
	return n
}

func (n *network) upstreamTime() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.told.IsZero() {
		return n.told
	}
	return n.clock.now()
}

// usage is what the upstream counted on a day of the month.
func (n *network) usage(day int) sandbox.Usage {
	n.mu.Lock()
	n.told = n.month.midnight(day).Add(12 * time.Hour)
	n.mu.Unlock()
	return n.sandbox.Usage()
}

// slowest is the longest that one way takes.
const slowest = 10 * time.Minute

// latency is the times of a request's two ways: most take half a second, one in a
// hundred takes minutes. They follow from the seed, the request and its instant, so
// that it does not matter which of several comes first.
func (n *network) latency(r *http.Request) (there, back time.Duration) {
	h := fnv.New64a()
	_, _ = io.WriteString(h, r.URL.RequestURI())
	luck := rand.New(rand.NewPCG(n.month.seed^h.Sum64(), uint64(time.Now().UnixNano())))
	way := func() time.Duration {
		d := 0.2 + luck.ExpFloat64()*0.4
		if luck.Float64() < 0.01 {
			d += luck.ExpFloat64() * 60
		}
		return min(slowest, time.Duration(d*float64(time.Second)))
	}
	return way(), way()
}

var errCut = errors.New("the connection was cut")

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) { return n.ask(r, func() {}) }

// ask is RoundTrip; who asks gets the answer after hold.
func (n *network) ask(r *http.Request, hold func()) (*http.Response, error) {
	type result struct {
		response *http.Response
		err      error
	}
	there, back := n.latency(r)
	answered := make(chan result, 1)
	began := n.clock.now()
	heard := make(chan bool, 1)
	n.under.Go(func() {
		<-time.After(there)
		response, err := n.arrive(r) //nolint:bodyclose // the client that asked closes it
		counted := n.clock.now()
		<-time.After(back)
		answered <- result{response, err}
		ended := n.clock.now()
		if !<-heard {
			n.lose(unheardAnswer, counted, priceOf(r.URL.Path))
			ended = began.Add(n.lease) // by then nothing of it is open
		}
		if n.month.important != "" && r.URL.Query().Get("q") == n.month.important {
			n.take(began, ended, priceOf(r.URL.Path))
		}
		if n.month.day(began) != n.month.day(ended) {
			n.lose(astrideOfDays, began, priceOf(r.URL.Path))
			n.lose(astrideOfDays, ended, priceOf(r.URL.Path))
		}
	})
	select {
	case got := <-answered:
		hold()
		if r.Context().Err() == nil {
			heard <- true
			return got.response, got.err
		}
	case <-r.Context().Done():
		hold()
	}
	heard <- false
	return nil, r.Context().Err()
}

// arrive has the upstream answer.
func (n *network) arrive(r *http.Request) (response *http.Response, err error) {
	defer func() {
		if recover() != nil {
			n.lose(failedRequest, n.clock.now(), priceOf(r.URL.Path))
			err = errCut
		}
	}()
	w := httptest.NewRecorder()
	day := n.month.day(n.clock.now())
	n.sandbox.ServeHTTP(w, r)
	if w.Code == http.StatusOK {
		n.number(w.Body, day, r.URL)
	} else {
		n.lose(failedRequest, n.clock.now(), priceOf(r.URL.Path))
	}
	return w.Result(), nil
}

// searches is where searches are asked for, the only pages that cost more than a
// unit, and listings where what fills the day is.
const (
	searches = "/youtube/v3/search"
	listings = "/youtube/v3/playlistItems"
)

func priceOf(path string) int64 {
	if path == searches {
		return 100
	}
	return 1
}

// A page's number stands where its etag stood.
const (
	numbered   = `page-%022d`
	etagLength = 27
)

var (
	etag       = []byte(`"etag": "`)
	pageNumber = regexp.MustCompile(`"etag":"page-(\d{22})"`)
)

// number notes a page and puts its number into the answer.
func (n *network) number(body *bytes.Buffer, day int, of *url.URL) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := bytes.Index(body.Bytes(), etag) + len(etag)
	copy(body.Bytes()[at:at+etagLength], fmt.Sprintf(numbered, len(n.pages)))
	query := of.Query()
	n.pages = append(n.pages, page{
		day: day, units: priceOf(of.Path), path: of.Path,
		asked: query.Get("q"), place: query.Get("regionCode") + query.Get("pageToken"),
	})
}

// pagesOf are the numbers of the pages of a text: every line is one.
func pagesOf(text []byte) (list []int, err error) {
	for line := range bytes.Lines(text) {
		found := pageNumber.FindSubmatch(line[:min(len(line), 100)])
		if found == nil || line[len(line)-1] != '\n' {
			return list, fmt.Errorf("line %d is no whole page: %.200q", len(list)+1, line)
		}
		number, err := strconv.Atoi(string(found[1]))
		if err != nil {
			return list, fmt.Errorf("line %d: %w", len(list)+1, err)
		}
		list = append(list, number)
	}
	return list, nil
}

// keep counts pages as kept by the pass of a tick, and returns how many of them were before.
func (n *network) keep(pages []int, tick time.Time) (twice int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range pages {
		if n.pages[i].kept {
			twice++
			continue
		}
		n.pages[i].kept, n.pages[i].of = true, n.month.day(tick)
	}
	return twice
}
