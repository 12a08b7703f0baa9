package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/upstreamtest"
)

// callsSource is a program that makes a hundred calls, one after the other.
const callsSource = `package main

import (
	"io"
	"net/http"
)

func main() {
	for range 100 {
		resp, err := http.Get("https://api.example.com/v1/a")
		if err != nil {
			panic(err)
		}
		if _, err = io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			panic(resp.Status)
		}
		_ = resp.Body.Close()
	}
}
`

// BenchmarkMeter compares programs under meter, turn by turn, with the same without: one that
// does nothing with exec, which charges a call before (later-ms is how much later it ends), and
// one of a hundred calls to an upstream that answers after 50 ms (ratio is of the whole times).
func BenchmarkMeter(b *testing.B) {
	quotactl := built(b, exec.CommandContext(b.Context(), "go", "build", "-trimpath"), "quotactl", "")
	calls := built(b, exec.CommandContext(b.Context(), "go", "build", "-trimpath"), "calls", callsSource)
	in := upstreamtest.Start(b, func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(50 * time.Millisecond)
		_, _ = io.WriteString(w, "ok")
	}, "api.example.com")
	for _, name := range []string{"HTTPS_PROXY", "https_proxy"} {
		b.Setenv(name, in.Proxy.String())
	}
	b.Setenv("SSL_CERT_FILE", in.Cert)
	must.Do(b, os.Unsetenv("SSL_CERT_DIR"))
	config := filepath.Join(b.TempDir(), "costs.toml")
	must.Do(b, os.WriteFile(config, fmt.Appendf(nil, meterConfig, 1_000_000_000), 0o600))
	with := func(command string, args ...string) []string {
		return append([]string{quotactl, "-c", config, command}, args...)
	}
	for _, c := range []struct {
		name          string
		bare, metered []string
	}{
		{"start", with("exec", "shop/main", "get", "--", "true"), with("meter", "-q", "--", "true")},
		{"calls", []string{calls}, with("meter", "-q", "--", calls)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var later []time.Duration
			var ratios []float64
			for b.Loop() {
				bare, _ := timesOf(b, c.bare)
				metered, _ := timesOf(b, c.metered)
				later, ratios = append(later, metered-bare), append(ratios, float64(metered)/float64(bare))
			}
			slices.Sort(later)
			slices.Sort(ratios)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(later[len(later)/2].Microseconds())/1000, "later-ms")
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
		})
	}
}
