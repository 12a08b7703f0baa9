package youtube_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"testing"
	"time"
	_ "time/tzdata" // Pacific days

	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	"google.golang.org/api/youtube/v3"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/testdata/clients/upstream"
)

// key is the secret. With an HTTP client of one's own option.WithAPIKey does
// nothing: it is sent in a header, which no error shows.
const key = "AIzaSecret"

var pacific = func() *time.Location {
	at, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		panic(err)
	}
	return at
}()

// withKey sends the key.
type withKey struct{ http.RoundTripper }

func (k withKey) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("X-Goog-Api-Key", key)
	return k.RoundTripper.RoundTrip(req)
}

// metered is the client beside its budget and its server.
type metered struct {
	*youtube.Service
	budget *budget.Budget
	server *server
	seen   upstream.Observer
}

func newMetered(t *testing.T, network upstream.Network, o budgethttp.Options, menu menu, faults *upstream.Faults) *metered {
	t.Helper()
	m := &metered{server: newServer(t, menu, faults)}
	base := withKey{upstream.Serve(t, network, m.server, faults)}
	var client *http.Client
	m.budget, client = upstream.Meter(t, "youtube", "youtube/key1", base, o, &m.seen)
	var err error
	if m.Service, err = youtube.NewService(t.Context(), option.WithHTTPClient(client)); err != nil {
		t.Fatal(err)
	}
	return m
}

// list reads all pages of a playlist, and is how many came.
func (m *metered) list(ctx context.Context) (came int, err error) {
	err = m.PlaylistItems.List([]string{"snippet"}).PlaylistId("PL1").MaxResults(50).Pages(ctx, func(page *youtube.PlaylistItemListResponse) error {
		came++
		return nil
	})
	return came, err
}

func (m *metered) search(ctx context.Context) error {
	_, err := m.Search.List([]string{"id"}).Q("cats").Context(ctx).Do()
	return err
}

func (m *metered) insert(ctx context.Context) error {
	_, err := m.PlaylistItems.Insert([]string{"snippet"}, &youtube.PlaylistItem{}).Context(ctx).Do()
	return err
}

// film is what is uploaded.
var film = bytes.Repeat([]byte("0123456789abcdef"), 3<<20/16)

// upload sends it in six parts.
func (m *metered) upload(ctx context.Context) error {
	_, err := m.Videos.Insert([]string{"snippet"}, &youtube.Video{}).Context(ctx).
		Media(bytes.NewReader(film), googleapi.ChunkSize(512<<10), googleapi.ContentType("video/mp4")).Do()
	return err
}

// apiError is what the API said; nil: it is another error.
func apiError(err error) *googleapi.Error {
	var said *googleapi.Error
	errors.As(err, &said)
	return said
}

// status is that of the API's error, 0 for another.
func status(err error) int {
	if said := apiError(err); said != nil {
		return said.Code
	}
	return 0
}
