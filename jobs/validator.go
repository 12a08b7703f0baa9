package jobs

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode"
)

// validator is what an upstream has said of a page, and by which it can be asked whether
// the page has changed since.
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

// readValidators reads the validators of the last complete run. Without them every page
// is asked for without a condition.
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
		f.run.log.Warn("what the upstream told of its pages is not known; all are asked for", "error", err)
	case known.Of == f.source():
		f.known = known.Pages
	}
}

// source is what is fetched, and whereto: a page that is unchanged is in the files
// there.
func (f *fetchRun) source() string {
	return f.of(f.run.job.expand(f.run.job.Fetch.URL, f.asOf, f.run.record.Region), f.run.job.Fetch.Output)
}

// condition is the validator that a page is asked for with, if there is one.
func (f *fetchRun) condition(token string) (validator, bool) {
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
	if etag := header.Get("ETag"); etag != "" {
		v.ETag = etag
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

// maxCheckpointValidators is how much of validators goes with each checkpoint, in bytes.
const maxCheckpointValidators = 32 << 10

// withinCheckpoint are those validators that go with a checkpoint: none where they are much, as
// each page writes them again. The next run then asks for those pages as they are.
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

// toKeep is what the next run is to know of the pages of this one, which is
// complete; nil for nothing.
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
