package driver

import "strings"

// ValidName reports whether s can name an upstream, credential, operation,
// limit, job or region: a letter or digit, then up to 62 of letters, digits,
// dot, underscore and dash.
func ValidName(s string) bool { return len(s) <= 63 && validLabel(s, "._-") }

// validLabel reports whether s is a letter or digit and then letters, digits and
// those of more.
func validLabel(s, more string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i == 0 || strings.IndexByte(more, c) < 0:
			return false
		}
	}
	return s != ""
}

// ValidRun reports whether s can be a run's label.
func ValidRun(s string) bool { return len(s) <= 128 && validLabel(s, "._:/-") }

// ValidID reports whether s is 1 to 128 printable ASCII characters without
// spaces.
func ValidID(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// ValidBudget reports whether s can name a budget: upstream/credential.
func ValidBudget(s string) bool {
	upstream, credential, ok := strings.Cut(s, "/")
	return ok && ValidName(upstream) && ValidName(credential)
}
