package sandbox

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	defaultPageSize = 5
	maxPageSize     = 50
)

// page is a part of a listing.
type page struct {
	listing listing
	offset  int // of the first item
	size    int // items asked for
}

// parsePage reads which page of a resource a query asks for, or returns the answer that refuses it.
func parsePage(name string, query url.Values, results int) (page, *answer) {
	p := page{listing: newListing(name, query, results), size: defaultPageSize}
	if len(p.listing.ids) > maxPageSize {
		refusal := badParameter("id", "invalidFilters", fmt.Sprintf("The request specifies an invalid filter parameter: more than %d ids.", maxPageSize))
		return page{}, &refusal
	}
	if query.Has("maxResults") {
		asked := query.Get("maxResults")
		n, err := strconv.Atoi(asked)
		if err != nil || n < 1 || n > maxPageSize {
			refusal := badParameter("maxResults", "invalidParameter",
				fmt.Sprintf("Invalid value '%s'. Values must be within the range: [1, %d]", asked, maxPageSize))
			return page{}, &refusal
		}
		p.size = n
	}
	if p.listing.ids != nil {
		p.size = maxPageSize // a list by ids is one page
	}
	if token := query.Get("pageToken"); token != "" {
		offset, ok := parseToken(token)
		if !ok || offset >= p.listing.total {
			refusal := badParameter("pageToken", "invalidPageToken", "The request specifies an invalid page token.")
			return page{}, &refusal
		}
		p.offset = offset
	}
	return p, nil
}

// listResponse is YouTube's shape of a page.
type listResponse struct {
	Kind          string   `json:"kind"`
	Etag          string   `json:"etag"`
	NextPageToken string   `json:"nextPageToken,omitempty"`
	PageInfo      pageInfo `json:"pageInfo"`
	Items         []item   `json:"items"`
}

type pageInfo struct {
	TotalResults   int `json:"totalResults"`
	ResultsPerPage int `json:"resultsPerPage"`
}

func (p page) response(res resource) listResponse {
	end := min(p.offset+p.size, p.listing.total)
	r := listResponse{
		Kind:     "youtube#" + res.singular + "ListResponse",
		PageInfo: pageInfo{p.listing.total, end - p.offset},
		Items:    make([]item, 0, end-p.offset),
	}
	for i := p.offset; i < end; i++ {
		r.Items = append(r.Items, p.listing.item(res, i))
	}
	if end < p.listing.total {
		r.NextPageToken = pageToken(end)
	}
	sum := sha256.Sum256(encodeJSON(r, ""))
	r.Etag = base64.RawURLEncoding.EncodeToString(sum[:20])
	return r
}

// pageToken names the page that begins at offset. It has the format of YouTube's tokens: the offset as field 1 of a
// protocol buffer, and field 2 saying forwards.
func pageToken(offset int) string {
	b := []byte{0x08}
	n := uint64(offset)
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	b = append(b, byte(n), 0x10, 0x00)
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseToken accepts the tokens of pageToken, and nothing else.
func parseToken(token string) (offset int, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < 4 || len(b) > 8 {
		return 0, false
	}
	for i, c := range b[1 : len(b)-2] {
		offset |= int(c&0x7f) << (7 * i)
	}
	return offset, pageToken(offset) == token
}

// idsOf returns the ids that a query lists, each once, or nil when it does not list by id.
func idsOf(query url.Values) []string {
	if !query.Has("id") {
		return nil
	}
	ids := []string{}
	for id := range strings.SplitSeq(strings.Join(query["id"], ","), ",") {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
