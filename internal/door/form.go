package door

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/quotactl/quotactl/internal/serve"
)

// The bounds of a form.
const (
	maxForm  = 16 << 10
	maxField = 4 << 10
)

// form is what a page has posted.
type form url.Values

// text is the field's value without the spaces around it; empty if it was left out.
func (f form) text(field string) string { return strings.TrimSpace(url.Values(f).Get(field)) }

// list has the parts of all values of a field, separated by commas or spaces.
func (f form) list(field string) (parts []string) {
	for _, value := range f[field] {
		parts = append(parts, strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	return parts
}

// readForm reads a form's body; false if it has refused the request.
func readForm(w http.ResponseWriter, r *http.Request) (form, bool) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/x-www-form-urlencoded" || len(r.Header["Content-Type"]) != 1 {
		serve.Refuse(w, "media_type", "send the form with Content-Type: application/x-www-form-urlencoded")
		return nil, false
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			w.Header().Set("Connection", "close") // do not wait for the rest
			serve.Refuse(w, "body_size", "send a form of at most 16 KiB")
			return nil, false
		}
		serve.Refuse(w, "form", "the form could not be read: send its fields as a browser does")
		return nil, false
	}
	f := form(r.PostForm)
	for field, values := range f {
		if len(values) > 1 && field != "regions" {
			serve.Refuse(w, "form", fmt.Sprintf("the form has the field %.20q more than once", field))
			return nil, false
		}
		for _, value := range values {
			if wrong := unfit(value); wrong != "" {
				serve.Refuse(w, "form", fmt.Sprintf("the form's field %.20q %s", field, wrong))
				return nil, false
			}
		}
	}
	return f, true
}

// unfit says what is wrong with a field's value, whatever it is for.
func unfit(value string) string {
	switch {
	case len(value) > maxField:
		return "is longer than 4 KiB"
	case !utf8.ValidString(value):
		return "is not UTF-8"
	case strings.ContainsFunc(value, unicode.IsControl):
		return "has a control character: write it on one line"
	}
	return ""
}

// refuseForm refuses a form that the session has not been given.
func refuseForm(w http.ResponseWriter) {
	serve.Refuse(w, "old_form", "the form is not of this session, so nothing was changed: reload the page and try again")
}
