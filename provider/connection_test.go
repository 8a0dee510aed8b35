package provider

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// While an argument is unknown, everything can be planned, nothing is sent, and what cannot
// work without the coordinator says so.
func TestUnknownProviderArguments(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	known := newCore(t, attrs{"endpoint": f.URL})
	stream, group := known.must(known.none(shardCount), orders(2)), known.must(known.none(streamGroup), billing())
	for name, config := range map[string]attrs{
		"endpoint":  {"endpoint": tftypes.UnknownValue},
		"endpoints": {"endpoints": tftypes.UnknownValue},
		"token":     {"endpoint": f.URL, "token": tftypes.UnknownValue},
		"key":       {"endpoint": f.URL, "client_key": tftypes.UnknownValue},
		// A module hands on its variables, of which one of two is null in the end.
		"either endpoint":    {"endpoint": tftypes.UnknownValue, "endpoints": tftypes.UnknownValue},
		"either credentials": {"endpoint": f.URL, "token": tftypes.UnknownValue, "token_file": tftypes.UnknownValue, "username": "u", "password": tftypes.UnknownValue},
		"either authority":   {"endpoint": f.URL, "ca_certificate": tftypes.UnknownValue, "ca_certificate_file": "ca.pem"},
		"budget":             {"endpoint": f.URL, "retry_budget": tftypes.UnknownValue},
		"insecure":           {"endpoint": f.URL, "insecure_skip_verify": tftypes.UnknownValue},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(f.requests)
			c := newCoreOf(t, New("test")())
			c.ok(c.validateProvider(config))
			c.ok(c.configure(config))
			if p := c.plan(c.none(shardCount), orders(tftypes.UnknownValue)); failed(p.diags) {
				t.Errorf("plan of a create: %q", errorsOf(p.diags))
			}
			if p := c.plan(stream, orders(4)); failed(p.diags) || p.noop() {
				t.Errorf("plan of an update: %q", errorsOf(p.diags))
			}
			if p := c.plan(group, billing(attrs{"rebalance_timeout": "3s"})); failed(p.diags) || p.noop() {
				t.Errorf("plan of an update: %q", errorsOf(p.diags))
			}
			for _, i := range []instance{stream, group} {
				after, diags := c.read(i)
				c.ok(diags)
				if !after.state.Equal(i.state) {
					t.Errorf("reading without a coordinator changed the state to %s", after.state)
				}
			}
			for kind, config := range dataSources {
				_, diags := c.readData(kind, config)
				oneError(t, diags, "Provider not configured", "depends_on")
			}
			_, diags := c.open(token, attrs{})
			oneError(t, diags, "Provider not configured")
			_, diags = c.invoke(resumeKind, attrs{"stream_prefix": "orders"})
			oneError(t, diags, "Provider not configured")
			for _, l := range c.list(shardCount, attrs{}, 0, false) {
				oneError(t, l.diags, "Provider not configured")
			}
			if n := len(f.requests) - before; n != 0 {
				t.Errorf("%d requests were sent", n)
			}
		})
	}
}

// A Terraform that can defer is asked to.
func TestUnknownProviderIsDeferred(t *testing.T) {
	t.Parallel()
	c := newCoreOf(t, New("test")())
	typ := c.schema.Provider.ValueType()
	_, err := c.server.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{
		Config: c.pack(typ, object(typ, attrs{"endpoint": tftypes.UnknownValue})), ClientCapabilities: &tfprotov6.ConfigureProviderClientCapabilities{DeferralAllowed: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	data := c.schema.DataSourceSchemas["redisstream_stream"].ValueType()
	resp, err := c.server.ReadDataSource(t.Context(), &tfprotov6.ReadDataSourceRequest{
		TypeName: "redisstream_stream", Config: c.pack(data, object(data, attrs{"stream_prefix": "orders"})),
		ClientCapabilities: &tfprotov6.ReadDataSourceClientCapabilities{DeferralAllowed: true},
	})
	if err != nil || failed(resp.Diagnostics) || resp.Deferred == nil {
		t.Errorf("%+v, %v", resp, err)
	}
}

// What every request carries, and what every change carries beyond it.
func TestRequestsSayWhoAndWhy(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := newCore(t, attrs{"endpoint": f.URL, "request_id_prefix": "run-7:", "requested_by": "ci of team orders"})
	i := c.must(c.none(shardCount), orders(2))
	c.must(c.none(streamGroup), billing(attrs{"reason": "because"}))
	c.must(i, orders(3))
	for _, r := range f.requests {
		want := fmt.Sprintf("terraform-provider-redisstream/test terraform/1.11.4 go/%s ", strings.TrimPrefix(runtime.Version(), "go"))
		if agent := r.header.Get("User-Agent"); !strings.HasPrefix(agent, want) {
			t.Errorf("user agent %q", agent)
		}
	}
	keys := map[string]bool{}
	for _, r := range f.mutations() {
		id, key := r.header.Get("X-Request-Id"), r.header.Get("Idempotency-Key")
		if strings.Contains(r.header.Get("X-Dry-Run"), "true") {
			continue
		}
		if !strings.HasPrefix(id, "run-7:") || len(id) != len("run-7:")+36 || key == "" || keys[key] {
			t.Errorf("%s %s: request id %q, key %q", r.method, r.path, id, key)
		}
		keys[key] = true
		if !strings.Contains(r.body, `"requestedBy":"ci of team orders"`) || !strings.Contains(r.body, `"reason":"`) {
			t.Errorf("%s %s: %s", r.method, r.path, r.body)
		}
	}
}

func TestSeveralEndpoints(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c := newCore(t, attrs{"endpoints": []string{dead, f.URL}})
	c.must(c.none(shardCount), orders(2))
}

// The coordinator is verified, by the system's authorities or by one's own, and a proxy before it
// may want to know the client.
func TestTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	serverCert, serverKey := ours.issue("coordinator")
	pair, err := tls.X509KeyPair([]byte(serverCert), []byte(serverKey))
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(ours.cert)
	f := newFake(t)
	var seen []string
	var mu sync.Mutex
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		name := "nobody"
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		seen = append(seen, name)
		mu.Unlock()
		f.serve(w, r)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients}
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	cert, key := ours.issue("terraform")
	dir := t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	ok := func(config attrs, want string) {
		t.Helper()
		config["endpoint"] = s.URL
		newCore(t, config).plan(instance{kind: shardCount, state: tftypes.NewValue(newCore(t, config).typ(shardCount), nil)}, orders(2))
		_, diags := newCore(t, config).importID(shardCount, "nope")
		for _, d := range diags {
			if d.Severity == tfprotov6.DiagnosticSeverityError {
				t.Errorf("%v: %s: %s", config, d.Summary, d.Detail)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if len(seen) == 0 || seen[len(seen)-1] != want {
			t.Errorf("seen as %q, want %q", seen, want)
		}
	}
	ok(attrs{"ca_certificate": ours.pem()}, "nobody")
	ok(attrs{"ca_certificate_file": file("ca.pem", theirs.pem()+ours.pem())}, "nobody")
	ok(attrs{"ca_certificate": ours.pem(), "client_certificate": cert, "client_key": key}, "terraform")
	ok(attrs{"ca_certificate": ours.pem(), "client_certificate_file": file("cert.pem", cert), "client_key_file": file("key.pem", key)}, "terraform")
	ok(attrs{"insecure_skip_verify": true}, "nobody")

	for name, config := range map[string]attrs{"by the system": {}, "by another authority": {"ca_certificate": theirs.pem()}} {
		config["endpoint"] = s.URL
		begin := time.Now()
		_, diags := newCore(t, config).importID(shardCount, "orders")
		oneError(t, diags, "certificate", "ca_certificate")
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("%s: a certificate that is wrong was tried for %s", name, took)
		}
	}
	c := newCoreOf(t, New("test")())
	if w := warningsOf(c.configure(attrs{"endpoint": s.URL, "insecure_skip_verify": true})); len(w) != 1 || !strings.Contains(w[0], "not verified") {
		t.Errorf("warnings: %q", w)
	}
	_, other := theirs.issue("x")
	oneError(t, c.configure(attrs{"endpoint": s.URL, "client_certificate": cert, "client_key": other}), "client_certificate", "does not go with the client key")
}

// A token that is renewed in its file holds through a long apply.
func TestTokenFileIsReadAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first-token\n")
	c := newCore(t, attrs{"endpoint": f.URL, "token_file": path})
	i := c.must(c.none(shardCount), orders(2))
	write("  second-token")
	c.refresh(i)
	if got := f.requests[0].header.Get("Authorization"); got != "Bearer first-token" {
		t.Errorf("first request with %q", got)
	}
	if got := f.requests[len(f.requests)-1].header.Get("Authorization"); got != "Bearer second-token" {
		t.Errorf("last request with %q", got)
	}
	write("broken token")
	_, diags := c.read(i)
	oneError(t, diags, "token", path, "white space")
	if strings.Contains(strings.Join(errorsOf(diags), ""), "broken token") {
		t.Error("the error shows what stands in the file")
	}
}

// limiter refuses what comes faster than perSecond, after a burst of as many.
type limiter struct {
	mu        sync.Mutex
	perSecond float64
	tokens    float64
	last      time.Time
	refused   []time.Time
	passed    int
}

func (l *limiter) serve(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.last.IsZero() {
		l.tokens = l.perSecond
	} else {
		l.tokens = min(l.perSecond, l.tokens+now.Sub(l.last).Seconds()*l.perSecond)
	}
	l.last = now
	if l.tokens < 1 {
		l.refused = append(l.refused, now)
		w.Header().Set("Retry-After", "2")
		refuse(w, protocol.NewError(protocol.CodeRateLimited, "slow down"))
		return true
	}
	l.tokens--
	l.passed++
	return false
}

// T7: thirty resources get through a limit of five requests a second, without anybody seeing it.
func TestT7RateLimit(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := newCoreOf(t, New("test")())
	c.ok(c.configure(attrs{"endpoint": f.URL}))
	c.must(c.none(shardCount), orders(2))
	l := &limiter{perSecond: 5}
	c.config = nil // all that follows is one run of Terraform, with one connection
	f.set(func() { f.intercept = l.serve })

	begin := time.Now()
	next := make(chan string, 30)
	for n := range 30 {
		next <- fmt.Sprintf("g%d", n)
	}
	close(next)
	var wg sync.WaitGroup
	for range 10 { // Terraform's parallelism
		wg.Go(func() {
			for name := range next {
				after, diags := c.apply(t.Context(), c.plan(c.none(streamGroup), billing(attrs{"consumer_group": name})))
				if failed(diags) || after.state.IsNull() {
					t.Errorf("%s: %q", name, errorsOf(diags))
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	if len(l.refused) == 0 || len(l.refused) > 3*l.passed {
		t.Errorf("%d requests were refused, %d passed", len(l.refused), l.passed)
	}
	if took > 2*time.Minute {
		t.Errorf("took %s", took)
	}
	t.Logf("%d passed, %d refused, in %s", l.passed, len(l.refused), took)
	// What was refused does not come back in step: after the burst of the beginning, hardly two
	// refusals within 50 ms.
	slices.SortFunc(l.refused, time.Time.Compare)
	close50 := 0
	for i, at := range l.refused[1:] {
		if at.Sub(begin) > time.Second && at.Sub(l.refused[i]) < 50*time.Millisecond {
			close50++
		}
	}
	if close50 > len(l.refused)/3 {
		t.Errorf("%d of %d refusals came within 50 ms of another", close50, len(l.refused))
	}
}

func TestT7AlwaysUnavailable(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := newCoreOf(t, New("test")())
	c.ok(c.configure(attrs{"endpoint": f.URL, "retry_budget": "2s"}))
	f.set(func() {
		f.intercept = bad(503, "application/json", `{"errorCode":"COORDINATOR_OVERLOADED","message":"too much"}`)
	})
	begin := time.Now()
	_, diags := c.apply(t.Context(), c.plan(c.none(streamGroup), billing()))
	oneError(t, diags, "overloaded", "attempts", "HTTP 503")
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("took %s", took)
	}
	for status, code := range map[int]string{400: "INVALID_REQUEST", 404: "NOT_FOUND", 409: "ACTIVE_MIGRATION_EXISTS", 422: "ROLLBACK_NOT_ALLOWED", 412: "GENERATION_MISMATCH"} {
		f.set(func() {
			f.requests = nil
			f.intercept = bad(status, "application/json", fmt.Sprintf(`{"errorCode":%q,"message":"no"}`, code))
		})
		_, diags := c.readData("redisstream_stream", attrs{"stream_prefix": "orders"})
		oneError(t, diags, code)
		if n := len(f.requests); n != 1 {
			t.Errorf("%d was sent %d times", status, n)
		}
	}
}
