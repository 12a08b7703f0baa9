package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/upstreamtest"
)

const javaClient = `
import java.net.URI;
import java.net.http.*;
public class Get {
  public static void main(String[] args) throws Exception {
    var client = HttpClient.newBuilder().proxy(java.net.ProxySelector.getDefault()).build();
    client.send(HttpRequest.newBuilder(URI.create("https://" + args[0] + "/")).build(), HttpResponse.BodyHandlers.ofString());
  }
}`

// grpcClient exits with 0 if its call arrived: the server does not speak gRPC, which is an error of its own.
const grpcClient = `
import grpc, sys
call = grpc.secure_channel(sys.argv[1] + ":443", grpc.ssl_channel_credentials()).unary_unary("/quota.Test/Unary")
try:
    call(b"", timeout=60)
except grpc.RpcError as e:
    sys.exit(e.details() if e.code() != grpc.StatusCode.UNKNOWN else 0)`

// The key of a run vouches for no other host: each client accepts a certificate inside the CA's
// constraints, and refuses one outside.
func TestClientsHoldTheCAToItsHosts(t *testing.T) {
	effort.Processes(t)
	const inside, outside = "inside.example.com", "outside.example.com"
	a := must.Get(newAuthority([]string{inside}, time.Now()))(t)
	in := upstreamtest.Start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }, inside)
	a.hosts = append(a.hosts, outside) // the constraints stay as they are
	in.TLS.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return a.leaf(hello.ServerName) }
	s, env := surrounded(t, surroundOptions{
		env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "JAVA_HOME=" + os.Getenv("JAVA_HOME")}, hosts: []string{inside, outside},
		proxy: in.Proxy.Host, direct: in.Proxy.Host, token: "token", ca: a.pem(), noHooks: true, java: true, temp: t.TempDir(),
	})
	_, port, _ := strings.Cut(in.Listener.Addr().String(), ":")
	java := filepath.Join(t.TempDir(), "Get.java")
	must.Do(t, os.WriteFile(java, []byte(javaClient), 0o600))
	clients := map[string]string{
		"curl":   `curl -sSf https://$1/`,
		"python": `python3 -c 'import sys, urllib.request; urllib.request.urlopen("https://" + sys.argv[1] + "/")' $1`,
		"node":   `node -e 'require("tls").connect({host: "127.0.0.1", port: process.argv[2], servername: process.argv[1]}, () => process.exit(0)).on("error", () => process.exit(1))' $1 $2`,
		"php":    `php -r 'exit(stream_socket_client("ssl://127.0.0.1:$argv[2]", $code, $text, 20, STREAM_CLIENT_CONNECT, stream_context_create(["ssl" => ["peer_name" => $argv[1]]])) ? 0 : 1);' $1 $2`,
	}
	if effort.Of(false, false, true) {
		clients["wget"] = `wget -qO- https://$1/`
		clients["git"] = `case $(git ls-remote https://$1/x 2>&1) in *certificate*) exit 1;; esac`
		clients["perl"] = `perl -MLWP::UserAgent -e 'my $r = LWP::UserAgent->new->get("https://$ARGV[0]/"); exit($r->is_success ? 0 : 1)' $1`
		clients["ruby"] = `ruby -ropen-uri -e 'URI.open("https://" + ARGV[0] + "/")' $1`
		clients["grpc"] = "/usr/bin/python3 -c '" + grpcClient + "' $1" // Debian's, which has the library
		clients["java"] = `java ` + java + ` $1`
	}
	for name, script := range clients {
		for _, host := range []string{inside, outside} {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", host, port)
			cmd.Env = s.env
			out, err := cmd.CombinedOutput()
			check.Equal(t, err == nil, host == inside, name+" at "+host+": "+string(out))
		}
	}
	for _, host := range []string{inside, outside} { // and Go, with gRPC there
		roots := x509.NewCertPool()
		check.Equal(t, roots.AppendCertsFromPEM(must.Get(os.ReadFile(env["SSL_CERT_FILE"]))(t)), true, "certificates")
		config := &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}
		conn, err := tls.Dial("tcp", in.Listener.Addr().String(), config)
		check.Equal(t, err == nil, host == inside, "Go at "+host)
		if err == nil {
			_ = conn.Close()
		}
	}
}
