package browser

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"flag"
	"image/png"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	chromepage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/memstore"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/ledgerfile"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/page"
	"github.com/quotactl/quotactl/jobs"
)

var picturesTo = flag.String("pictures", "", "write the pictures of the pages to this `folder`")

// noon is the instant at which the pictures were taken, whenever they are: before noon of the
// upstream's day.
var noon = time.Date(2026, 6, 10, 18, 42, 0, 0, time.UTC)

//go:embed testdata/picture.toml
var pictureConfig string

// mostPicture is how large a picture may be in the repository, in bytes.
const mostPicture = 200_000

// The pictures of the documentation are taken of these pages; make screenshots does it anew. All
// that they show is of one fixed instant.
func TestPictures(t *testing.T) {
	effort.Processes(t)
	address := pictured(t)
	to := *picturesTo
	if to == "" {
		to = t.TempDir()
	}
	for _, c := range []struct {
		name, path string
		width      int64
		upto       string // the picture ends below this element
		shows      []string
	}{
		{"page.png", "/", desk, "main .ages", []string{"youtube/key1", "github/bot", "backfill"}},
		{"page-budget.png", "/budget?name=youtube/key1", desk, "main figure.chart", []string{"pacific-day", "nightly"}},
		{"page-phone.png", "/", phone, "main table", []string{"youtube/key1"}},
		{"plan.png", "/plan", desk, "main figure.chart", []string{"will not start"}},
	} {
		b := newTab(t, strings.TrimPrefix(address, "http://"))
		b.size(c.width, false)
		call(b, chromepage.AddScriptToEvaluateOnNewDocument, chromepage.AddScriptToEvaluateOnNewDocumentParams{Source: fixedClock})
		b.visit(address+c.path, http.StatusOK)
		for _, words := range c.shows {
			b.appears(words)
		}
		b.still()
		shot := b.shoot(c.width, c.upto)
		b.clean(c.path)
		picture := must.Get(png.Decode(bytes.NewReader(shot)))(t)
		check.Equal(t, int64(picture.Bounds().Dx()), c.width, c.name, "pixels wide")
		var small bytes.Buffer
		must.Do(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, picture))
		if small.Len() > len(shot) {
			small = *bytes.NewBuffer(shot)
		}
		check.Equal(t, small.Len() <= mostPicture, true, c.name, "has", small.Len(), "bytes, at most", mostPicture)
		must.Do(t, os.WriteFile(filepath.Join(to, c.name), small.Bytes(), 0o644))
	}
}

// still waits until nothing on the page is being read any more.
func (b *tab) still() {
	b.t.Helper()
	must.Get(chromedp.Run(b.ctx, chromedp.Poll[bool](`!document.querySelector(".busy") && document.querySelector("#live").textContent !== "reconnecting"`)))(b.t)
}

// shoot takes a picture of the page from its top to a little below an element.
func (b *tab) shoot(width int64, upto string) []byte {
	b.t.Helper()
	height := eval[float64](b, "Math.ceil(document.querySelector(%q).getBoundingClientRect().bottom + scrollY) + 24", upto)
	shot := call(b, chromepage.CaptureScreenshot, chromepage.CaptureScreenshotParams{
		Clip: &chromepage.Viewport{Width: float64(width), Height: height, Scale: 1}, CaptureBeyondViewport: new(true),
	})
	return shot.Data
}

// fixedClock makes the page's clock stand at noon, in UTC.
const fixedClock = `{
	const at = Date.UTC(2026, 5, 10, 18, 42), Real = Date;
	window.Date = class extends Real {
		constructor(...of) { super(...(of.length ? of : [at])); }
		static now() { return at; }
	};
}`

// pictured serves the pages of a made-up day, whose clock stands, and returns the address.
func pictured(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(file, []byte(pictureConfig), 0o600))
	cfg := must.Get(config.Parse(file))(t)
	list := jobs.Load(cfg)
	must.Do(t, cfg.Err())
	now := func() time.Time { return noon }
	store := memstore.New(func() int64 { return noon.UnixMicro() })
	p := newPast(noon)
	p.schedules = map[string]string{}
	for _, job := range list {
		p.schedules[job.Name] = job.Schedule.String() + " " + job.Schedule.Zone().String()
	}
	p.picture()
	for name, charges := range p.charges {
		spec := must.Get(cfg.Spec(name))(t)
		must.Get(ledgerfile.Import(t.Context(), store, strings.NewReader(export(t, name, noon, charges)), spec.Limits, now))(t)
	}
	p.record(t.Context(), t, store)
	aDaemon(t, store)
	log := slog.New(slog.DiscardHandler)
	reader := &look.Reader{
		Config: cfg, Jobs: list, Store: store, URL: "sqlite:quotactl.db", Now: now, Log: log,
		Open: func(name string) (*budget.Budget, error) {
			return open.BudgetOn(store, cfg, cfg.Store.URL, name, budget.WithNow(now))
		},
	}
	site := page.New(page.Options{Reader: func() *look.Reader { return reader }, Now: now, Log: log, Version: "1.0"})
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	return server.URL
}

// aDaemon has a daemon look after the jobs.
func aDaemon(t *testing.T, store driver.JobStore) {
	t.Helper()
	text := must.Get(json.Marshal(map[string]any{"daemons": []map[string]any{{
		"holder": "4711@web1/1", "since": noon.Add(-50 * time.Hour).UnixMicro(), "until": noon.Add(time.Minute).UnixMicro(),
	}}}))(t)
	if !must.Get(store.SwapJob(t.Context(), driver.JobSwap{Job: "@daemons", Text: text}))(t) {
		t.Fatal("the daemon was not recorded")
	}
}

// picture is the day of testdata/picture.toml before noon, and the evening before.
func (p *past) picture() {
	const youtube, github = "youtube/key1", "github/bot"
	midnight := time.Date(2026, 6, 10, 7, 0, 0, 0, time.UTC) // in Los Angeles
	before := func(tick time.Time) bool { return tick.Before(p.now.Add(-time.Minute)) }
	for _, day := range []time.Time{midnight.Add(-48 * time.Hour), midnight.Add(-24 * time.Hour), midnight} {
		for hour := 0; hour < 24; hour += 3 {
			if tick := day.Add(time.Duration(hour) * time.Hour); before(tick) {
				p.pass(youtube, "trending", tick, []string{"US", "GB", "DE", "FR", "IN", "BR", "AU", "CA"}, "videos.list", 1, 28+p.dice.IntN(6))
			}
		}
		for hour := 0; hour < 24; hour += 4 {
			if tick := day.Add(time.Duration(hour)*time.Hour + 30*time.Minute); before(tick) {
				p.pass(youtube, "trends", tick, []string{""}, "search.list", 100, 5+p.dice.IntN(2))
			}
		}
		if tick := day.Add(time.Hour); before(tick) {
			p.pass(youtube, "nightly", tick, []string{""}, "videos.list", 1, 2_330+p.dice.IntN(60))
		}
		if tick := day.Add(17 * time.Hour); before(tick) {
			p.pass(youtube, "backfill", tick, []string{""}, "search.list", 100, 14)
		}
		for minute := 0; minute < 24*60; minute += 30 {
			if tick := day.Add(time.Duration(minute) * time.Minute); before(tick) {
				p.pace = 50 * time.Millisecond
				p.pass(github, "mirror", tick, []string{"issues", "pulls"}, "rest.get", 1, 480+p.dice.IntN(100))
			}
		}
	}
	for _, list := range p.charges {
		slices.SortFunc(list, func(a, b charged) int { return a.At.Compare(b.At) })
	}
}
