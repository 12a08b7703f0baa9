package config

import "strings"

// Secret is how a request carries a credential's secret: in Query or in Header, at most one.
// The zero value: no request carries it.
type Secret struct {
	Query  string // the parameter's name
	Header string // the header's name
	Prefix string // precedes the secret in the header
}

// Secret reads how a request carries a secret.
func (n Node) Secret() Secret {
	if !n.Exists() {
		return Secret{}
	}
	const advice = "write { query = \"key\" } or { header = \"Authorization\", prefix = \"Bearer \" }"
	if !n.IsTable() {
		n.Fail("secret says how the secret is sent, it is not the secret: %s", advice)
		return Secret{}
	}
	t := n.Table("query", "header", "prefix")
	query, hasQuery := t["query"].Text()
	header, hasHeader := t["header"].Text()
	prefix, hasPrefix := t["prefix"].Text()
	switch {
	case t["query"].Exists() && t["header"].Exists():
		n.Fail("secret goes into query and header: keep one")
	case !t["query"].Exists() && !t["header"].Exists():
		n.Fail("secret goes nowhere: %s", advice)
	case hasQuery && query == "":
		t["query"].Fail("query is empty: write the parameter's name, such as \"key\"")
	case hasHeader && !headerName().MatchString(header):
		t["header"].Fail("header is not a valid header name: write \"Authorization\" or \"X-Api-Key\"")
	case hasPrefix && !hasHeader:
		t["prefix"].Fail("prefix belongs to a header: write header = \"Authorization\" beside it, or take it out")
	case hasPrefix && strings.ContainsFunc(prefix, func(r rune) bool { return r < ' ' || r > '~' }):
		t["prefix"].Fail("prefix contains characters that no header can carry: use printable ASCII characters")
	}
	return Secret{query, header, prefix}
}
