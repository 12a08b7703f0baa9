package main

import "strings"

// A scenario is a part of a client's program: what it prints, and what it costs.
type scenario struct {
	result string
	spends map[string]spend // by upstream and operation, "api list"
}

// scenarios are those of the programs of testdata/clients, by the names that these take as
// arguments.
var scenarios = map[string]scenario{
	"token":     {"6 items", map[string]spend{"api list": {3, 3}}},
	"absolute":  {"6 items", map[string]spend{"api list": {3, 3}}},
	"link":      {"6 items", map[string]spend{"api list": {3, 3}}},
	"upload":    {"1048576 bytes", map[string]spend{"api upload": {50, 1}}},
	"resumable": {"624288 bytes", map[string]spend{"api resumable": {100, 1}}},
	"events":    {"5 events", map[string]spend{"api events": {5, 1}}},
	"gzip":      {"20000 bytes", map[string]spend{"api packed": {2, 1}}},
	"br":        {"20000 bytes", map[string]spend{"api packed": {2, 1}}},
	"zstd":      {"20000 bytes", map[string]spend{"api packed": {2, 1}}},
	"head":      {"200 20000", map[string]spend{"api head": {1, 1}}},
	"etag":      {"200 304", map[string]spend{"api file": {6, 2}}},
	"moved":     {"200", map[string]spend{"api redirect": {1, 1}, "api file": {3, 1}}},
	"away":      {"elsewhere", map[string]spend{"api redirect": {1, 1}}},
	"slow":      {"1 line, then cancelled", map[string]spend{"api slow": {7, 1}}},
	"parallel":  {"50", map[string]spend{"api parallel": {50, 50}}},
	"get":       {"200 20000", map[string]spend{"api file": {3, 1}}},
	"body":      {"20000 bytes", map[string]spend{"api file": {3, 1}}},
	"status":    {"200", map[string]spend{"api file": {3, 1}}},

	"unary":    {"hello", map[string]spend{"grpc unary": {1, 1}}},
	"streams":  {"5 served, 1 collected, 5 echoed", map[string]spend{"grpc stream": {30, 3}}},
	"statuses": {"800 failed as they should, 800 good", map[string]spend{"grpc unary": {800, 800}, "grpc failed": {800, 800}}},

	"videos":    {"6 videos", map[string]spend{"youtube videos": {3, 3}}},
	"insert":    {"whole", map[string]spend{"youtube insert": {200, 1}}},
	"refresh":   {"2 videos", map[string]spend{"youtube videos": {1, 1}}},
	"drive":     {"drive#about", nil},
	"issues":    {"6 issues", map[string]spend{"github repo": {1, 1}, "github issues": {6, 3}}},
	"customers": {"2 customers, 1 created", map[string]spend{"stripe list": {2, 2}, "stripe create": {5, 1}}},
	"channels":  {"2 channels", map[string]spend{"slack list": {6, 2}}},
	"chat":      {"hello, hello", map[string]spend{"openai chat": {20, 2}}},
	"message":   {"hello, hello", map[string]spend{"anthropic message": {20, 2}}},
	"tables":    {"2 tables", map[string]spend{"aws call": {4, 2}}},

	"pip_download": {"demo-1.0-py3-none-any.whl", map[string]spend{"packages index": {1, 1}, "packages find": {4, 1}}},
	"npm_view":     {"1.0.0", map[string]spend{"packages index": {1, 1}}},
	"cargo_search": {`demo = "1.0.0"    # a package`, map[string]spend{"packages index": {1, 1}, "packages find": {4, 1}}},
	"go_list":      {"example.com/demo v1.0.0 v1.1.0", map[string]spend{"packages index": {3, 3}}},
	"gh_issues":    {"6 issues", map[string]spend{"github issues": {6, 3}}},
	"git_clone":    {"one", map[string]spend{"git refs": {1, 1}, "git pack": {18, 2}}},
}

// theScenario is a scenario by its name, which may have the client before it, as "curl_get" has.
func theScenario(name string) scenario {
	if s, ok := scenarios[name]; ok {
		return s
	}
	_, after, _ := strings.Cut(name, "_")
	return scenarios[after]
}

// everyday are the scenarios that every HTTP client of a language can do; whole are all.
var (
	everyday = []string{"token", "absolute", "link", "upload", "resumable", "gzip", "head", "etag", "moved", "away", "parallel"}
	whole    = append([]string{"events", "br", "zstd", "slow"}, everyday...)
)

// An outcome is what became of a client: clientRun.outcome measures it.
type outcome string

const (
	metered outcome = "metered"
	beside  outcome = "not metered" // it asks for no proxy
	fails   outcome = "fails"       // it takes the proxy, and trusts a list of its own
)

// A share is the least effort with which a client is run.
type share int

const (
	full share = iota
	ci
	small // with what every machine of a developer has
)

// A client is a line of the table in docs/meter-clients.md.
type client struct {
	name      string
	version   string   // a command that prints its version, or as clientKit.version has it
	program   []string // what is run; the first word as in programPaths
	scenarios []string // its arguments
	own       string   // a variable that names the roots already, by which it trusts hosts of no upstream
	java      bool     // it needs the flag --java
	repeats   bool     // it waits for a Retry-After within a minute, and asks again
	persists  bool     // it asks again for half an hour while the store is away
	share     share
	refused   string // what it prints of a final refusal, if not the refusal's own text
}

var clients = []client{
	{name: "curl, HTTP/2", version: "curl --version", program: []string{"sh", "shell/curl.sh"}, scenarios: whole, share: small},
	{name: "curl, HTTP/1.1", version: "curl --version", program: []string{"env", "HTTP=--http1.1", "sh", "shell/curl.sh"}, scenarios: whole},
	{name: "Python requests", version: "pip requests", program: []string{"python", "python/requests_client.py"}, scenarios: whole, own: "REQUESTS_CA_BUNDLE", share: ci},
	{name: "Python requests with a `verify` of its own", version: "pip requests", program: []string{"python", "python/requests_client.py"}, scenarios: []string{"verify_status"}, share: ci},
	{name: "Python httpx", version: "pip httpx", program: []string{"python", "python/httpx_client.py"}, scenarios: whole, share: ci},
	{name: "Python httpx, HTTP/2", version: "pip httpx", program: []string{"python", "python/httpx_client.py", "h2"}, scenarios: whole},
	{name: "Python httpx with a transport of its own", version: "pip httpx", program: []string{"python", "python/httpx_client.py"}, scenarios: []string{"transport_status"}, share: ci},
	{name: "Python urllib", version: "python --version", program: []string{"python", "python/urllib_client.py"}, scenarios: []string{"token", "absolute", "upload", "resumable", "head", "etag", "moved", "away"}},
	{name: "Python http.client", version: "python --version", program: []string{"python", "python/httpclient_client.py"}, scenarios: []string{"get"}},
	{name: "Python aiohttp", version: "pip aiohttp", program: []string{"python", "python/aiohttp_client.py"}, scenarios: []string{"link", "upload", "events", "gzip", "head", "etag", "moved", "parallel"}},
	{name: "Python urllib3", version: "pip urllib3", program: []string{"python", "python/urllib3_client.py"}, scenarios: []string{"get", "upload", "gzip", "moved", "parallel"}, repeats: true},
	{name: "boto3", version: "pip boto3", program: []string{"python", "python/boto3_client.py"}, scenarios: []string{"tables"}},
	{name: "google-api-python-client", version: "pip google-api-python-client", program: []string{"python", "python/google_client.py"}, scenarios: []string{"videos", "insert"}},
	{name: "google-auth", version: "pip google-auth", program: []string{"python", "python/google_client.py"}, scenarios: []string{"refresh", "drive"}, own: "REQUESTS_CA_BUNDLE"},
	{name: "PyGithub", version: "pip PyGithub", program: []string{"python", "python/github_client.py"}, scenarios: []string{"issues"}},
	{name: "stripe (Python)", version: "pip stripe", program: []string{"python", "python/stripe_client.py"}, scenarios: []string{"customers"}},
	{name: "gRPC (Python)", version: "pip grpcio", program: []string{"python", "python/grpcio_client.py"}, scenarios: []string{"unary", "streams", "statuses"}},
	{name: "pip", version: "python -m pip --version", program: []string{"sh", "shell/tools.sh"}, scenarios: []string{"pip_download"}, refused: "No matching distribution", repeats: true},
	{name: "HTTPie", version: "http --version", program: []string{"sh", "shell/tools.sh"}, scenarios: []string{"httpie_body", "httpie_upload"}},
	{name: "wget", version: "wget --version", program: []string{"sh", "shell/tools.sh"}, scenarios: []string{"wget_body"}, refused: "403"},
	{name: "npm", version: "npm_ --version", program: []string{"sh", "shell/tools.sh"}, scenarios: []string{"npm_view"}, refused: "403", repeats: true},
	{name: "cargo", version: "cargo --version", program: []string{"sh", "shell/tools.sh"}, scenarios: []string{"cargo_search"}},
	{name: "go", version: "go_ version", program: []string{"sh", "shell/tools.sh"}, scenarios: []string{"go_list"}, refused: "403"},
	{name: "gh", version: "gh --version", program: []string{"sh", "shell/tools.sh"}, scenarios: []string{"gh_issues"}},
	{name: "git", version: "git --version", program: []string{"sh", "shell/tools.sh"}, scenarios: []string{"git_clone"}, refused: "403"},
	{name: "a child's child", version: "curl --version", program: []string{"sh", "shell/tools.sh"}, scenarios: []string{"child_status"}, refused: "403"},
	{name: "Node 20 fetch", version: "node20 --version", program: []string{"node20", "node/fetch.mjs"}, scenarios: nodeFetch, share: ci},
	{name: "Node 24 fetch", version: "node --version", program: []string{"node", "node/fetch.mjs"}, scenarios: whole},
	{name: "Node https", version: "node --version", program: []string{"node", "node/libraries.mjs", "https"}, scenarios: []string{"token", "link", "upload", "resumable", "get", "head", "etag", "parallel"}},
	{name: "axios", version: "npm axios", program: []string{"node", "node/libraries.mjs", "axios"}, scenarios: library},
	{name: "got", version: "npm got", program: []string{"node", "node/libraries.mjs", "got"}, scenarios: library, repeats: true},
	{name: "got, HTTP/2", version: "npm got", program: []string{"node", "node/libraries.mjs", "got-http2"}, scenarios: library, repeats: true},
	{name: "node-fetch", version: "npm node-fetch", program: []string{"node", "node/libraries.mjs", "node-fetch"}, scenarios: library},
	{name: "undici", version: "npm undici", program: []string{"node", "node/libraries.mjs", "undici"}, scenarios: library},
	{name: "Node https with an agent of its own", version: "node --version", program: []string{"node", "node/libraries.mjs", "agent"}, scenarios: []string{"token", "upload", "get", "parallel"}},
	{name: "axios with `proxy: false`", version: "npm axios", program: []string{"node", "node/libraries.mjs", "axios-direct"}, scenarios: []string{"get"}},
	{name: "Node http2", version: "node --version", program: []string{"node", "node/libraries.mjs", "http2"}, scenarios: []string{"token", "upload", "get", "parallel"}},
	{name: "googleapis", version: "npm googleapis", program: []string{"node", "node/vendors.mjs"}, scenarios: []string{"videos", "insert"}},
	{name: "octokit", version: "npm octokit", program: []string{"node", "node/vendors.mjs"}, scenarios: []string{"issues"}},
	{name: "openai (Node)", version: "npm openai", program: []string{"node", "node/vendors.mjs"}, scenarios: []string{"chat"}, repeats: true},
	{name: "@anthropic-ai/sdk", version: "npm @anthropic-ai/sdk", program: []string{"node", "node/vendors.mjs"}, scenarios: []string{"message"}, repeats: true},
	{name: "@slack/web-api", version: "npm @slack/web-api", program: []string{"node", "node/vendors.mjs"}, scenarios: []string{"channels"}, refused: "ratelimited", repeats: true, persists: true},
	{name: "stripe (Node)", version: "npm stripe", program: []string{"node", "node/vendors.mjs"}, scenarios: []string{"customers"}},
	{name: "stripe (Node) with its fetch client", version: "npm stripe", program: []string{"node", "node/vendors.mjs"}, scenarios: []string{"fetch_customers"}},
	{name: "PHP curl", version: "php --version", program: []string{"php", "php/clients.php"}, scenarios: []string{"curl_token", "curl_upload", "curl_gzip", "curl_moved"}},
	{name: "Guzzle", version: "php --version", program: []string{"php", "php/clients.php"}, scenarios: []string{"guzzle_link", "guzzle_upload", "guzzle_parallel"}},
	{name: "Ruby Net::HTTP", version: "ruby --version", program: []string{"ruby", "ruby/clients.rb"}, scenarios: []string{"net_token", "net_upload", "net_gzip", "openuri_moved"}},
	{name: "Faraday", version: "ruby faraday Faraday::VERSION", program: []string{"ruby", "ruby/clients.rb"}, scenarios: []string{"faraday_get"}},
	{name: "Ruby httpclient", version: "ruby httpclient HTTPClient::VERSION", program: []string{"ruby", "ruby/clients.rb"}, scenarios: []string{"httpclient_get"}},
	{name: "octokit.rb", version: "ruby octokit Octokit::VERSION", program: []string{"ruby", "ruby/clients.rb"}, scenarios: []string{"issues"}},
	{name: "Perl LWP", version: "perl -MLWP -e print+LWP->VERSION", program: []string{"perl", "perl/clients.pl"}, scenarios: []string{"lwp_token", "lwp_upload", "lwp_moved"}},
	{name: "Perl HTTP::Tiny", version: "perl -MHTTP::Tiny -e print+HTTP::Tiny->VERSION", program: []string{"perl", "perl/clients.pl"}, scenarios: []string{"tiny_link", "tiny_upload", "tiny_moved"}},
	{name: "Java HttpURLConnection", version: "java -version", program: []string{"java", "java/Clients.java"}, scenarios: []string{"connection_get", "connection_upload"}, java: true},
	{name: "Java HttpClient", version: "java -version", program: []string{"java", "java/Clients.java"}, scenarios: []string{"client_get", "client_upload", "client_moved", "client_parallel"}, java: true},
	{name: "Go net/http", version: "go_ version", program: []string{"go"}, scenarios: whole, share: small},
	{name: "Go, a clone of the default transport", version: "go_ version", program: []string{"go", "clone"}, scenarios: everyday, share: ci},
	{name: "gRPC (Go)", version: "go_ list -m google.golang.org/grpc", program: []string{"go"}, scenarios: []string{"unary", "streams", "statuses"}, share: small},
}

// library are what a library for HTTP does in Node.
var library = []string{"token", "link", "upload", "resumable", "get", "gzip", "head", "etag", "moved", "parallel"}

// nodeFetch is what fetch does in a Node that has no zstd, and takes no proxy: it reaches the
// hosts of upstreams alone.
var nodeFetch = []string{"events", "br", "slow", "token", "absolute", "link", "upload", "resumable", "gzip", "head", "etag", "moved", "parallel"}
