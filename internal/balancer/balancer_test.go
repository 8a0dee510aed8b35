package balancer

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestEveryRequestGoesToTheNext: no affinity, and 502 for a replica that is gone.
func TestEveryRequestGoesToTheNext(t *testing.T) {
	t.Parallel()
	replica := func(name string) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, name)
		}))
	}
	a, b := replica("a"), replica("b")
	defer a.Close()
	gone := replica("gone")
	gone.Close()
	defer b.Close()
	lb, err := Start(t.Context(), a.URL, b.URL, gone.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer lb.Close()
	seen := map[string]int{}
	for range 9 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, lb.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusBadGateway {
			body = []byte("502")
		}
		seen[string(body)]++
	}
	if seen["a"] != 3 || seen["b"] != 3 || seen["502"] != 3 {
		t.Errorf("9 requests went to %v, want 3 each", seen)
	}
}
