package sandbox_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/jobs/sandbox"
)

type listed struct {
	Kind, Etag    string
	NextPageToken *string
	PageInfo      struct{ TotalResults, ResultsPerPage int }
	Items         []struct {
		Kind       string
		ID         any
		Snippet    struct{ Title, ChannelTitle, PublishedAt string }
		Statistics struct{ ViewCount string }
	}
}

func list(t *testing.T, s *sandbox.Server, target string) listed {
	t.Helper()
	w := get(s, target)
	must.Equal(t, w.Code, 200, "GET", target, "…", w.Body)
	var l listed
	must.Do(t, json.Unmarshal(w.Body.Bytes(), &l))
	return l
}

// follow reads all pages of a listing and returns the ids in order and the pages' sizes.
func follow(t *testing.T, s *sandbox.Server, target string) (ids []string, sizes []int) {
	t.Helper()
	next := target
	for range 1000 {
		l := list(t, s, next)
		if l.PageInfo.ResultsPerPage != len(l.Items) {
			t.Fatalf("GET %s: %d items, resultsPerPage %d", next, len(l.Items), l.PageInfo.ResultsPerPage)
		}
		for _, it := range l.Items {
			ids = append(ids, fmt.Sprint(it.ID))
		}
		sizes = append(sizes, len(l.Items))
		if l.NextPageToken == nil {
			return ids, sizes
		}
		next = target + "&pageToken=" + url.QueryEscape(*l.NextPageToken)
	}
	t.Fatalf("GET %s: no last page", target)
	return nil, nil
}

func TestPagesCoverAllItemsOnce(t *testing.T) {
	tests := []struct {
		results int
		query   string
		sizes   []int
	}{
		{0, "&maxResults=50", []int{50, 50, 50, 50}},
		{0, "", slices.Repeat([]int{5}, 40)},
		{7, "", []int{5, 2}},
		{5, "", []int{5}},
		{1, "&maxResults=50", []int{1}},
		{3, "&maxResults=1", []int{1, 1, 1}},
		{300, "&maxResults=49", []int{49, 49, 49, 49, 49, 49, 6}},
	}
	for _, tt := range tests {
		for _, target := range []string{videos, search} {
			t.Run(fmt.Sprintf("%d%s %s", tt.results, tt.query, target), func(t *testing.T) {
				s := open(t, sandbox.Config{Results: tt.results, Quota: 1_000_000})
				ids, sizes := follow(t, s, target+tt.query)
				check.EqualSlices(t, sizes, tt.sizes, "pages of")
				seen := map[string]bool{}
				for _, id := range ids {
					if seen[id] {
						t.Errorf("id %s twice", id)
					}
					seen[id] = true
				}
				whole, _ := follow(t, s, target+"&maxResults=50")
				check.EqualSlices(t, ids, whole, "the size of the pages changes what they hold")
				if total := list(t, s, target).PageInfo.TotalResults; total != len(ids) {
					t.Errorf("totalResults %d, %d items", total, len(ids))
				}
			})
		}
	}
}

func TestSameRequestSameBytes(t *testing.T) {
	a, b := open(t, sandbox.Config{}), open(t, sandbox.Config{Seed: 7, Quota: 500})
	for _, target := range []string{videos, search, videos + "&maxResults=50&pageToken=CDIQAA", "/youtube/v3/nosuch?key=k", videos + "&maxResults=x"} {
		first := get(a, target).Body.Bytes()
		u := must.Get(url.Parse(target))(t)
		for name, other := range map[string][]byte{
			"again":              get(a, target).Body.Bytes(),
			"by another server":  get(b, target).Body.Bytes(),
			"with a key besides": get(a, target+"&api_key=AIzaSecret").Body.Bytes(),
			"with another key":   get(a, strings.Replace(target, "key=k", "key=other", 1)).Body.Bytes(),
			"in another order":   get(a, u.Path+"?"+u.Query().Encode()).Body.Bytes(),
		} {
			if !bytes.Equal(first, other) {
				t.Errorf("GET %s %s differs:\n%s\nfirst:\n%s", target, name, other, first)
			}
		}
	}
}

func TestFiltersChangeContent(t *testing.T) {
	s := open(t, sandbox.Config{})
	views := map[string]string{}
	etags := map[string]string{}
	for _, target := range []string{
		videos,
		strings.Replace(videos, "US", "GB", 1),
		videos + "&videoCategoryId=10",
		"/youtube/v3/channels?chart=mostPopular&regionCode=US&key=k",
	} {
		l := list(t, s, target)
		views[l.Items[0].Statistics.ViewCount] = target
		etags[l.Etag] = target
	}
	check.Equal(t, len(views), 4, "of four listings, first view counts")
	check.Equal(t, len(etags), 4, "of four listings, first view counts")
	if one, two := list(t, s, videos).Etag, list(t, s, videos+"&pageToken=CAUQAA").Etag; one == two {
		t.Errorf("two pages of one etag %s", one)
	}
	if plain, parts := get(s, videos).Body.String(), get(s, videos+"&part=snippet,statistics").Body.String(); plain != parts {
		t.Error("part= changes the content")
	}
}

func TestItems(t *testing.T) {
	s := open(t, sandbox.Config{})
	l := list(t, s, videos)
	if l.Kind != "youtube#videoListResponse" || l.Items[0].Kind != "youtube#video" {
		t.Errorf("kinds %s and %s", l.Kind, l.Items[0].Kind)
	}
	for i, it := range l.Items {
		if id, ok := it.ID.(string); !ok || len(id) != 11 {
			t.Errorf("item %d: id %v", i, it.ID)
		}
		if it.Snippet.Title == "" || it.Snippet.ChannelTitle == "" || it.Statistics.ViewCount == "" {
			t.Errorf("item %d: empty parts: %+v", i, it)
		}
		instant(t, it.Snippet.PublishedAt)
	}
	l = list(t, s, search)
	id, ok := l.Items[0].ID.(map[string]any)
	if !ok || id["kind"] != "youtube#video" || len(id["videoId"].(string)) != 11 {
		t.Errorf("search id %v", l.Items[0].ID)
	}
	if l.Kind != "youtube#searchListResponse" || l.Items[0].Kind != "youtube#searchResult" {
		t.Errorf("kinds %s and %s", l.Kind, l.Items[0].Kind)
	}
}

func TestListByID(t *testing.T) {
	many := make([]string, 51)
	for i := range many {
		many[i] = fmt.Sprint("v", i)
	}
	s := open(t, sandbox.Config{})
	tests := []struct {
		query string
		want  []string
	}{
		{"id=a,b,c,d,e,f,g", []string{"a", "b", "c", "d", "e", "f", "g"}},
		{"id=a&id=b", []string{"a", "b"}},
		{"id=a,a,,b", []string{"a", "b"}},
		{"id=a,b,c&maxResults=1", []string{"a", "b", "c"}},
		{"id=", nil},
		{"id=" + strings.Join(many[:50], ","), many[:50]},
	}
	for _, tt := range tests {
		ids, sizes := follow(t, s, "/youtube/v3/videos?key=k&"+tt.query)
		if !slices.Equal(ids, tt.want) || len(sizes) != 1 {
			t.Errorf("%s: ids %v in pages of %v, want %v in one", tt.query, ids, sizes, tt.want)
		}
	}
	check.Contains(t, get(s, "/youtube/v3/videos?key=k&id=").Body.String(), `"items": []`, "no items")
	wantError(t, s, "/youtube/v3/videos?key=k&id="+strings.Join(many, ","), 400, "youtube.parameter", "invalidFilters")
}

func TestInvalidPages(t *testing.T) {
	s := open(t, sandbox.Config{Results: 200})
	for _, token := range []string{
		"x", "%25%25", "CAUQA", "CAUQAA==", "CAUQAQ", "AAAA", "EAUQAA",
		"CMgBEAA",            // offset 200: behind the last item
		"CIUAEAA",            // offset 5 in two bytes: not what was given
		"CP7_____fxAA",       // far too long
		"CAUQAACAUQAA",       // two tokens
		"CP____________",     // no end
		"CP___________wEQAA", // offset -1, if it were a signed 64-bit number
	} {
		wantError(t, s, videos+"&pageToken="+token, 400, "youtube.parameter", "invalidPageToken")
	}
	for _, token := range []string{"CAAQAA", "CAUQAA", "CMcBEAA", ""} {
		wantStatus(t, s, videos+"&pageToken="+token, 200)
	}
	for _, size := range []string{"0", "-1", "51", "x", "", "1.5", "99999999999999999999"} {
		wantError(t, s, videos+"&maxResults="+size, 400, "youtube.parameter", "invalidParameter")
	}
	for _, size := range []int{1, 50} {
		if l := list(t, s, fmt.Sprint(videos, "&maxResults=", size)); len(l.Items) != size {
			t.Errorf("maxResults=%d: %d items", size, len(l.Items))
		}
	}
}
