package daemon

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// httpMetrics counts what the listener does.
type httpMetrics struct {
	requests    *prometheus.CounterVec
	connections prometheus.Gauge
	evicted     prometheus.Counter
}

func newHTTPMetrics() *httpMetrics {
	return &httpMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "quotactl", Name: "http_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "status"}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "quotactl", Name: "http_open_connections", Help: "Open connections.",
		}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "quotactl", Name: "http_evicted_connections_total", Help: "Idle connections closed because too many were open.",
		}),
	}
}

func (m *httpMetrics) register(r *prometheus.Registry) {
	r.MustRegister(m.requests, m.connections, m.evicted)
}

// otherRoute is the label of all unknown paths.
const otherRoute = "other"

// routeOf is the label of a path.
func routeOf(path string) string {
	switch path {
	case "/metrics", "/healthz", "/readyz", "/v1/charge", "/v1/settle", "/v1/release", "/v1/status", "/v1/overview", "/v1/why", "/v1/openapi.json":
		return path
	}
	return otherRoute
}

// answered counts one request.
func (m *httpMetrics) answered(route string, status int) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// counted counts the requests of a handler. Each request makes its connection the most
// recently active one.
func (m *httpMetrics) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn := connectionOf(r); conn != nil {
			conn.decide(0)
		}
		noted := &notedWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() { m.answered(routeOf(r.URL.Path), noted.status) }()
		next.ServeHTTP(noted, r)
	})
}

// notedWriter notes the status of an answer.
type notedWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *notedWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets an http.ResponseController reach the connection.
func (w *notedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
