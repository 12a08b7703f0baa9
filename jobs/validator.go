package jobs

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode"
)

// validator is what an upstream has told of a page, to be asked by it whether the
// page has changed since.
type validator struct {
	Token    string `json:"token,omitempty"` // of the page; empty: the first
	ETag     string `json:"etag,omitempty"`  // as it came, weak or strong
	Modified string `json:"modified,omitempty"`
	Next     string `json:"next,omitempty"` // the token of the page after it
}

// validators are those of a region's last complete run.
type validators struct {
	Of    string      `json:"of"` // what is fetched, and whereto
	Pages []validator `json:"pages"`
}

// The bounds of what is kept of a region: so many pages, and of each no text that is
// longer.
const (
	maxValidators = 100
	maxValidator  = 1 << 10
)

// validatorsKey is the key, beside a job's document, of a region's validators.
func validatorsKey(region string) string { return "validators/" + region }

// readValidators finds what the last complete run was told. Without it every page is
// asked for as it is.
func (f *fetching) readValidators(ctx context.Context) {
	if !f.job.Fetch.Conditional {
		return
	}
	text, err := f.value(ctx, validatorsKey(f.run.Region))
	var known validators
	if err == nil && text != nil {
		err = json.Unmarshal(text, &known)
	}
	switch {
	case err != nil:
		f.log.Warn("what the upstream told of its pages is not known; all are asked for", "error", err)
	case known.Of == f.source():
		f.known = known.Pages
	}
}

// source is what is fetched, and whereto: a page that is unchanged is in the files
// there.
func (f *fetching) source() string {
	return f.of(f.job.expand(f.job.Fetch.URL, f.asOf, f.run.Region), f.job.Fetch.Output)
}

// condition is by what a page is asked for, if it is.
func (f *fetching) condition(token string) (validator, bool) {
	at := slices.IndexFunc(f.known, func(v validator) bool { return v.Token == token })
	if at < 0 {
		return validator{}, false
	}
	return f.known[at], true
}

// set puts the condition into a request. Of the two an upstream goes by the ETag.
func (v validator) set(header http.Header) {
	switch {
	case v.ETag != "":
		header.Set("If-None-Match", v.ETag)
	case v.Modified != "":
		header.Set("If-Modified-Since", v.Modified)
	}
}

// unchanged is a page that the upstream says is as before.
func (v validator) unchanged(header http.Header) *page {
	if told := header.Get("ETag"); told != "" {
		v.ETag = told
	}
	return &page{next: v.Next, unchanged: true, validator: v}
}

// newValidator is what a response tells of its page; the zero value for nothing.
func newValidator(header http.Header, token, next string) validator {
	v := validator{Token: token, ETag: header.Get("ETag"), Modified: header.Get("Last-Modified"), Next: next}
	if v.ETag == "" && v.Modified == "" {
		return validator{}
	}
	return v
}

// remember keeps what was told of a page for the next run, if it is of any use and
// not too much.
func (f *fetching) remember(v validator) {
	if !f.job.Fetch.Conditional || len(f.fresh) >= maxValidators {
		return
	}
	for _, text := range []*string{&v.ETag, &v.Modified} {
		if len(*text) > maxValidator || strings.ContainsFunc(*text, unicode.IsControl) {
			*text = ""
		}
	}
	if v.ETag == "" && v.Modified == "" || len(v.Token) > maxValidator || len(v.Next) > maxValidator || f.holds(strings.Join([]string{v.ETag, v.Modified, v.Token, v.Next}, "\n")) {
		return
	}
	f.fresh = append(f.fresh, v)
}

// maxFew is how much of validators goes with each checkpoint, in bytes.
const maxFew = 32 << 10

// few are those validators that go with a checkpoint: none where they are much, as
// each page writes them again. The next run then asks for those pages as they are.
func few(list []validator) []validator {
	size := 0
	for _, v := range list {
		size += len(v.Token) + len(v.ETag) + len(v.Modified) + len(v.Next)
	}
	if size > maxFew {
		return nil
	}
	return list
}

// toKeep is what the next run is to know of the pages of this one, which is
// complete; nil for nothing.
func (f *fetching) toKeep() []byte {
	if len(f.fresh) == 0 {
		return nil
	}
	text, err := json.Marshal(validators{f.source(), f.fresh})
	if err != nil {
		panic(err) // texts alone
	}
	return text
}
