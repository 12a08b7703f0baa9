package jobs

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode"
)

// validator is what a response said about a page's version, to ask later whether the page
// has changed.
type validator struct {
	Token    string `json:"token,omitempty"` // the page's; empty: the first
	ETag     string `json:"etag,omitempty"`  // as received, weak or strong
	Modified string `json:"modified,omitempty"`
	Next     string `json:"next,omitempty"` // the token of the page after it
}

// validators are those of a region's last complete run.
type validators struct {
	Of    string      `json:"of"` // hash of what is fetched, and where it is written
	Pages []validator `json:"pages"`
}

// The bounds of a region's validators: how many pages, and how many bytes each text
// may have.
const (
	maxValidators = 100
	maxValidator  = 1 << 10
)

// validatorsKey is the key, beside a job's document, of a region's validators.
func validatorsKey(region string) string { return "validators/" + region }

// readValidators reads the validators of the last complete run. Without them every page
// is requested unconditionally.
func (f *fetchRun) readValidators(ctx context.Context) {
	if !f.run.job.Fetch.Conditional {
		return
	}
	text, err := f.run.held.value(ctx, validatorsKey(f.run.record.Region))
	var known validators
	if err == nil && text != nil {
		err = json.Unmarshal(text, &known)
	}
	switch {
	case err != nil:
		f.run.log.Warn("the pages' validators could not be read; all pages are requested unconditionally", "error", err)
	case known.Of == f.source():
		f.known = known.Pages
	}
}

// source identifies what is fetched and where it is written: an unchanged page is in the
// files there.
func (f *fetchRun) source() string {
	return f.of(f.run.job.expand(f.run.job.Fetch.URL, f.asOf, f.run.record.Region), f.run.job.Fetch.Output)
}

// condition is the validator for a page's request, if there is one.
func (f *fetchRun) condition(token string) (validator, bool) {
	at := slices.IndexFunc(f.known, func(v validator) bool { return v.Token == token })
	if at < 0 {
		return validator{}, false
	}
	return f.known[at], true
}

// set adds the condition to a request. An upstream prefers the ETag.
func (v validator) set(header http.Header) {
	switch {
	case v.ETag != "":
		header.Set("If-None-Match", v.ETag)
	case v.Modified != "":
		header.Set("If-Modified-Since", v.Modified)
	}
}

// unchanged is a page that the upstream reports as unchanged.
func (v validator) unchanged(header http.Header) *page {
	if etag := header.Get("ETag"); etag != "" {
		v.ETag = etag
	}
	return &page{next: v.Next, unchanged: true, validator: v}
}

// newValidator reads a page's validator from its response; the zero value if it has none.
func newValidator(header http.Header, token, next string) validator {
	v := validator{Token: token, ETag: header.Get("ETag"), Modified: header.Get("Last-Modified"), Next: next}
	if v.ETag == "" && v.Modified == "" {
		return validator{}
	}
	return v
}

// remember keeps a page's validator for the next run, if it is usable and not too long.
func (f *fetchRun) remember(v validator) {
	if !f.run.job.Fetch.Conditional || len(f.fresh) >= maxValidators {
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

// maxCheckpointValidators bounds the validators in a checkpoint, in bytes.
const maxCheckpointValidators = 32 << 10

// withinCheckpoint returns the validators to store in a checkpoint: none if they are too
// large, since each page stores them again. The next run then requests those pages
// unconditionally.
func withinCheckpoint(list []validator) []validator {
	size := 0
	for _, v := range list {
		size += len(v.Token) + len(v.ETag) + len(v.Modified) + len(v.Next)
	}
	if size > maxCheckpointValidators {
		return nil
	}
	return list
}

// toKeep is what the next run needs to know about the pages of this complete run; nil for
// nothing.
func (f *fetchRun) toKeep() []byte {
	if len(f.fresh) == 0 {
		return nil
	}
	text, err := json.Marshal(validators{f.source(), f.fresh})
	if err != nil {
		panic(err) // texts alone
	}
	return text
}
