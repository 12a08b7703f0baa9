package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
)

// maxBody is the largest accepted body, in bytes, decompressed.
const maxBody = 64 << 20

// oneRequestTransport sends each request exactly once. Go's transport repeats a GET on
// its own when a kept connection turns out to be dead, and over HTTP/2 in more cases; the
// upstream may have counted the first one. So each request has its own HTTP/1 connection.
func oneRequestTransport() http.RoundTripper {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DisableKeepAlives:   true,
		Protocols:           protocols,
		TLSHandshakeTimeout: 10 * time.Second,
	}
}

// get requests one page. It does not follow redirects: they would be a second request,
// and would send the secret to another address.
func (f *fetchRun) get(ctx context.Context, token string) (*page, *ending) {
	secret, err := f.run.secrets.of(f.run.job)
	if err != nil {
		return nil, failed(ReasonSecret, err)
	}
	request, err := f.request(ctx, token, secret)
	if err != nil {
		return nil, failed(ReasonNetwork, errors.New(f.run.secrets.hide(err.Error(), secret)))
	}
	before, conditional := f.condition(token)
	before.set(request.Header)
	number := f.number()
	response, err := f.metered.RoundTrip(request)
	if refused := new(budget.RefusedError); errors.As(err, &refused) {
		return nil, refusal(ctx, err)
	}
	if err != nil {
		return nil, f.networkEnding(ctx, number, err, secret)
	}
	defer func() { _ = response.Body.Close() }() // the body was read
	body, err := io.ReadAll(io.LimitReader(response.Body, f.run.maxBody+1))
	refusal := func() error {
		status := strings.TrimSpace(fmt.Sprint(response.StatusCode, " ", http.StatusText(response.StatusCode)))
		return fmt.Errorf("page %d: the upstream answered %s%s", number, status, f.run.secrets.excerpt(body, err == nil, secret))
	}
	verdict, refused := budgethttp.VerdictOf(response)
	switch {
	case refused && err == nil:
		return nil, f.upstreamRefuses(response, verdict, refusal())
	case response.StatusCode == http.StatusNotModified && conditional:
		f.run.log.Debug("page unchanged", "page", number)
		return before.unchanged(response.Header), nil
	case response.StatusCode != http.StatusOK:
		end := failed(fmt.Sprintf("status %d", response.StatusCode), refusal())
		end.retry, end.wait = passes(response.StatusCode), budgethttp.RetryAfter(response.Header)
		if response.StatusCode == http.StatusTooManyRequests && end.wait > 0 {
			f.throttled(end)
		}
		return nil, end
	case err != nil:
		return nil, f.networkEnding(ctx, number, err, secret)
	case int64(len(body)) > f.run.maxBody:
		return nil, failed(ReasonBody, fmt.Errorf("page %d: the body has more than %d bytes: ask for smaller pages", number, f.run.maxBody))
	}
	got, err := f.run.job.Fetch.read(body)
	if err != nil {
		end := failed(ReasonBody, fmt.Errorf("page %d: %w", number, err))
		end.retry = isCut(body)
		return nil, end
	}
	got.validator = newValidator(response.Header, token, got.next)
	return got, nil
}

// upstreamRefuses is the ending of a page whose response a rule calls a refusal, whatever
// its status: GraphQL refuses with 200.
func (f *fetchRun) upstreamRefuses(response *http.Response, v budgethttp.Verdict, refusal error) *ending {
	end := failed(fmt.Sprintf("status %d", response.StatusCode), fmt.Errorf("%w (%s by rule %s)", refusal, v.Means, v.Rule))
	if v.Means == feedback.Overloaded {
		end.retry, end.wait = true, budgethttp.RetryAfter(response.Header)
		return end
	}
	end.outcome, end.reason, end.wait = Exhausted, ReasonUpstream, time.Until(v.Until)
	if v.Until.IsZero() { // nothing is locked, so nothing else keeps the next request
		end.wait = max(budgethttp.RetryAfter(response.Header), time.Second)
	}
	end.again = (!v.Until.IsZero() || v.Means == feedback.Throttled) && end.wait <= f.run.job.MaxWait
	return end
}

// throttled turns a failed page into a throttled one. No refusal rule matches, but status
// and Retry-After say so. Nothing is locked.
func (f *fetchRun) throttled(end *ending) {
	f.run.log.Warn("the upstream throttles, and no refusal rule fits: nothing is locked", "retry_after", end.wait, "max_wait", f.run.job.MaxWait)
	end.outcome, end.reason = Exhausted, ReasonUpstream
	end.err = fmt.Errorf("%w (Retry-After: %s; no refusal rule fits)", end.err, end.wait.Round(time.Millisecond))
	end.again = end.wait <= f.run.job.MaxWait
}

// networkEnding is the ending of a request without a response: the run was cut, or the
// upstream did not answer.
func (f *fetchRun) networkEnding(ctx context.Context, page int, err error, secret string) *ending {
	if ctx.Err() != nil {
		return cut(ctx)
	}
	var shown *url.Error // its text begins with the URL
	if errors.As(err, &shown) {
		err = shown.Err
	}
	end := failed(ReasonNetwork, errors.New(f.run.secrets.hide(fmt.Sprintf("page %d: no answer from %s: %v", page, f.host(), err), secret)))
	end.retry = true
	return end
}

// request makes the GET for a page, with its token and the secret.
func (f *fetchRun) request(ctx context.Context, token, secret string) (*http.Request, error) {
	fetch := f.run.job.Fetch
	address, err := url.Parse(f.run.job.expand(fetch.URL, f.asOf, f.run.record.Region))
	if err != nil {
		return nil, errors.New("the url cannot be read")
	}
	if f.run.options.Sandbox != nil {
		address.Scheme, address.Host = f.run.options.Sandbox.Scheme, f.run.options.Sandbox.Host
	}
	if token != "" {
		addQuery(address, fetch.NextParam, token)
	}
	if fetch.Secret.Query != "" {
		addQuery(address, fetch.Secret.Query, secret)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, errors.New("the url cannot be requested")
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "quotactl")
	if f.run.options.Sandbox != nil { // the sandbox bills by this key, however the job sends its secret
		request.Header.Set("X-Goog-Api-Key", sandboxSecret)
	}
	if fetch.Secret.Header != "" {
		request.Header.Set(fetch.Secret.Header, fetch.Secret.Prefix+secret)
	}
	return request, nil
}

// addQuery adds one parameter and leaves the query as the job wrote it.
func addQuery(address *url.URL, name, value string) {
	if address.RawQuery != "" {
		address.RawQuery += "&"
	}
	address.RawQuery += url.QueryEscape(name) + "=" + url.QueryEscape(value)
}

// host names the upstream, for messages.
func (f *fetchRun) host() string {
	if f.run.options.Sandbox != nil {
		return "the sandbox"
	}
	address, err := url.Parse(f.run.job.Fetch.URL)
	if err != nil {
		return "the upstream"
	}
	return address.Host
}

// expand fills in the placeholders of a URL or a path.
func (j *Job) expand(text string, tick time.Time, region string) string {
	return strings.NewReplacer(
		"{job}", j.Name, "{region}", region, "{tick}", tick.UTC().Format(TickFormat),
	).Replace(text)
}
