package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// hammer sends each of requests, complete HTTP/1.1 messages, over a connection of its own, one
// after the other, for the duration, and returns how many were answered 200 each second. It is
// as lean as can be, so that what is measured is the server. check sees each body.
func hammer(ctx context.Context, addr string, requests [][]byte, duration time.Duration, check func(body []byte) error) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var answered atomic.Int64
	var ready sync.WaitGroup
	ready.Add(len(requests))
	start := make(chan struct{})
	var deadline time.Time
	for _, req := range requests {
		wg.Go(func() {
			dialed := false
			err := func() error {
				conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
				ready.Done()
				dialed = true
				if err != nil {
					return err
				}
				defer conn.Close()
				select {
				case <-start:
				case <-ctx.Done():
					return ctx.Err()
				}
				if err := conn.SetDeadline(deadline.Add(10 * time.Second)); err != nil {
					return err
				}
				in := bufio.NewReaderSize(conn, 8<<10)
				var body []byte
				for time.Now().Before(deadline) {
					if _, err := conn.Write(req); err != nil {
						return err
					}
					if body, err = answer(in, body); err != nil {
						return err
					}
					if err := check(body); err != nil {
						return err
					}
					answered.Add(1)
				}
				return nil
			}()
			if !dialed {
				ready.Done()
			}
			if err != nil {
				cancel(err)
			}
		})
	}
	ready.Wait()
	begin := time.Now()
	deadline = begin.Add(duration)
	close(start)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	return float64(answered.Load()) / time.Since(begin).Seconds(), nil
}

// answer reads one response and returns its body in buf.
func answer(in *bufio.Reader, buf []byte) ([]byte, error) {
	status, err := in.ReadSlice('\n')
	if err != nil {
		return buf, err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200")) {
		return buf, fmt.Errorf("answered %q", bytes.TrimSpace(status))
	}
	length := -1
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return buf, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return buf, err
			}
		}
	}
	if length < 0 {
		return buf, errors.New("an answer without Content-Length")
	}
	if cap(buf) < length {
		buf = make([]byte, length)
	}
	buf = buf[:length]
	_, err = io.ReadFull(in, buf)
	return buf, err
}
