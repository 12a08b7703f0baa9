package door

import "net/http"

// hardening are the fields of every answer of a Door.
//
// There is no Strict-Transport-Security: it would hold for all ports of the host name, so for
// servers other than the daemon, and with a certificate that browsers do not know nobody
// could get past their warning. Referrer-Policy is not no-referrer, with which browsers send
// Origin: null with a page's own forms.
var hardening = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; " +
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "same-origin",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"X-Content-Type-Options":       "nosniff",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
	"Cache-Control":                "no-store", // the site may set another for its assets
}

func harden(h http.Header) {
	for name, value := range hardening {
		h.Set(name, value)
	}
}
