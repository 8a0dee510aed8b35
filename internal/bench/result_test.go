package main

import (
	"bufio"
	"strings"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[99-i] = i + 1
	}
	for _, c := range []struct{ p, want int }{{50, 50}, {99, 99}, {100, 100}, {1, 1}} {
		if got := percentile(hundred, c.p); got != c.want {
			t.Errorf("percentile %d = %d, want %d", c.p, got, c.want)
		}
	}
	if got := median([]int{7}); got != 7 {
		t.Errorf("median of one = %d", got)
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	if r := atLeast("", 75, 100, "", 0.75); !r.Met || *r.Ratio != 0.75 {
		t.Errorf("got %+v; want met", r)
	}
	if r := atLeast("", 74, 100, "", 0.75); r.Met {
		t.Errorf("got %+v; want not met", r)
	}
	if r := within("", 100*time.Millisecond, 100*time.Millisecond, 0); !r.Met || r.Reference != nil {
		t.Errorf("got %+v; want met, without reference", r)
	}
	if got := number(1234567); got != "1,234,567" {
		t.Errorf("number = %s", got)
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	in := bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX: y\r\n\r\n{}HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"))
	body, err := answer(in, nil)
	if err != nil || string(body) != "{}" {
		t.Fatalf("got %q, %v", body, err)
	}
	if _, err := answer(in, body); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("got %v; want the status", err)
	}
}
