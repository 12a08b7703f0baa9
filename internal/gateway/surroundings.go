package gateway

import (
	"crypto/x509"
	"errors"
	"net/url"
)

// surroundOptions is what the surroundings of a command are made from.
type surroundOptions struct {
	env           []string // as os.Environ has it
	hosts         []string // the metered hosts, as for newAuthority
	proxy         string   // the proxy's address, 127.0.0.1:port
	direct        string   // the address of the listener that goes by SNI; empty: there is none
	token         string   // the proxy's password
	ca            []byte   // the run's root, PEM
	noHooks, java bool
	temp          string // where the folder is made; empty: os.TempDir()
}

// surroundings is what a metered command finds around it: its environment, and a folder with the
// files that the environment names.
type surroundings struct {
	env           []string                         // the command's environment
	roots         *x509.CertPool                   // by which the proxy trusts upstreams
	upstreamProxy func(*url.URL) (*url.URL, error) // the proxy that was set before; as http.Transport's Proxy
	said          []string                         // what the user must know, a sentence each
}

// surround makes the surroundings of one command. The caller closes them once it has ended.
func surround(o surroundOptions) (*surroundings, error) {
	return nil, errors.New("surround: not built yet")
}

// close removes the folder.
func (s *surroundings) close() error { return nil }
