package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/quotactl/quotactl/internal/must"
)

// spend is what an operation took of an upstream's quota.
type spend struct{ units, calls int }

// fakeQuota is what each fake upstream grants, as testdata/clients/costs.toml says.
const fakeQuota = 2_000

// apis are fake upstreams behind TLS, for every host name. They count by themselves, by prices
// of their own, and refuse what is beyond their quota.
type apis struct {
	*http.ServeMux
	address string
	authority

	mu       sync.Mutex
	spends   map[string]spend // by upstream and operation, "api list"
	uploads  map[string]int   // bytes that a resumable upload has, by its id
	requests []string         // method, address and digest of the body, unsorted
	tunnels  map[string]int   // connections that the company's proxy made, by host
	refused  int
}

// startAPIs starts them; repositories is the folder of what git.example.com serves.
func startAPIs(t *testing.T, repositories string) *apis {
	f := &apis{
		ServeMux: http.NewServeMux(), authority: newAuthority(t),
		spends: map[string]spend{}, uploads: map[string]int{}, tunnels: map[string]int{},
	}
	f.common()
	f.grpc()
	f.vendors()
	f.packages(t, repositories)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := &http.Server{Handler: f, TLSConfig: f.tls(), ErrorLog: log.New(io.Discard, "", 0)}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.ServeTLS(listener, "", "") }()
	f.address = listener.Addr().String()
	return f
}

// ServeHTTP notes the request as the upstream got it.
func (f *apis) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	noted := fmt.Sprintf("%s https://%s%s", r.Method, r.Host, r.RequestURI)
	if r.Header.Get("Content-Type") != "application/grpc" { // whose streams are not whole before the answer
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone: nothing arrived
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if multipart := strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/"); len(body) > 0 && !multipart { // whose boundary is random
			noted += fmt.Sprintf(" %d bytes %x", len(body), sha256.Sum256(body))
		}
	}
	f.mu.Lock()
	f.requests = append(f.requests, noted)
	f.mu.Unlock()
	f.ServeMux.ServeHTTP(w, r)
}

// priced serves requests that cost units of an upstream's quota.
func (f *apis) priced(pattern, upstream, operation string, units int, serve http.HandlerFunc) {
	f.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if f.charge(w, upstream, operation, units) {
			serve(w, r)
		}
	})
}

// charge counts a call, or refuses it beyond the quota.
func (f *apis) charge(w http.ResponseWriter, upstream, operation string, units int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	used := 0
	for name, s := range f.spends {
		if strings.HasPrefix(name, upstream+" ") {
			used += s.units
		}
	}
	if used+units > fakeQuota {
		f.refused++
		http.Error(w, "the upstream's own quota is spent", http.StatusForbidden)
		return false
	}
	name := upstream + " " + operation
	f.spends[name] = spend{f.spends[name].units + units, f.spends[name].calls + 1}
	return true
}

// seen are the requests that arrived, in an order that does not depend on which came first.
func (f *apis) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(slices.Values(f.requests))
}

// counted is what the upstreams say was spent.
func (f *apis) counted() map[string]spend {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.spends)
}

func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
