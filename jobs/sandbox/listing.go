package sandbox

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// listing is the content of a list over all its pages. It follows from its name and filters alone.
type listing struct {
	label string   // the filters, for people: chart=mostPopular&regionCode=US
	seed  uint64   // of name and filters
	ids   []string // when listed by id, else nil
	total int
}

func newListing(name string, query url.Values, results int) listing {
	l := listing{label: filtersOf(query).Encode(), ids: idsOf(query), total: results}
	if l.ids != nil {
		l.total = len(l.ids)
	}
	l.seed = hash(name + "?" + l.label)
	return l
}

// item is one result. All parts that it has are always sent, whatever part= asks for.
type item struct {
	Kind       string      `json:"kind"`
	Etag       string      `json:"etag"`
	ID         any         `json:"id"` // a string; for search a searchID
	Snippet    snippet     `json:"snippet"`
	Statistics *statistics `json:"statistics,omitempty"` // videos and channels
}

type searchID struct {
	Kind    string `json:"kind"`
	VideoID string `json:"videoId"`
}

type snippet struct {
	PublishedAt  string `json:"publishedAt"`
	ChannelID    string `json:"channelId"`
	Title        string `json:"title"`
	ChannelTitle string `json:"channelTitle"`
}

// statistics are strings, as YouTube writes 64-bit numbers.
type statistics struct {
	ViewCount    string `json:"viewCount"`
	LikeCount    string `json:"likeCount"`
	CommentCount string `json:"commentCount"`
}

// firstPublished is an arbitrary fixed instant: answers must not depend on the time.
var firstPublished = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// item makes the ith result, from 0.
func (l listing) item(res resource, i int) item {
	var key uint64
	var id string
	if l.ids != nil {
		id = l.ids[i]
		key = scramble(l.seed ^ hash(id))
	} else {
		key = scramble(l.seed + uint64(i)*golden) // distinct for each i, and with it the id
		id = code(key)
	}
	channel := scramble(key) % 1000
	minutes := scramble(key+1) % (60 * 24 * 30)
	views := 1000 + scramble(key+2)%10_000_000
	title := fmt.Sprintf("%s %d", res.singular, i+1)
	if l.label != "" {
		title += " of " + l.label
	}
	it := item{
		Kind: "youtube#" + res.singular,
		Etag: code(scramble(key + 3)),
		ID:   id,
		Snippet: snippet{
			PublishedAt:  firstPublished.Add(-time.Duration(minutes) * time.Minute).Format(time.RFC3339),
			ChannelID:    "UC" + code(channel),
			Title:        title,
			ChannelTitle: fmt.Sprintf("Channel %d", channel),
		},
	}
	switch res.singular {
	case "search":
		it.Kind = "youtube#searchResult"
		it.ID = searchID{"youtube#video", id}
	case "video", "channel":
		it.Statistics = &statistics{
			ViewCount:    strconv.FormatUint(views, 10),
			LikeCount:    strconv.FormatUint(views/20, 10),
			CommentCount: strconv.FormatUint(views/300, 10),
		}
	}
	return it
}

func hash(s string) uint64 {
	sum := sha256.Sum256([]byte(s))
	return binary.BigEndian.Uint64(sum[:])
}

// code writes 64 bits in the eleven characters of a video id.
func code(n uint64) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, n))
}

// golden is an odd step, so its multiples do not repeat within 2^64.
const golden = 0x9e3779b97f4a7c15

// scramble is splitmix64's finish: one to one, so distinct numbers stay distinct.
func scramble(n uint64) uint64 {
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}
