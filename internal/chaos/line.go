package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What workers report, one line each, before and after each step: a letter and fields that
// blanks separate; the last one may hold blanks. at is in ns of the wall clock, which all
// processes of the machine share.
const (
	lineAttempt   = "A" // key number at: the append is about to be asked for
	lineLanded    = "L" // key number shard id
	lineFailed    = "F" // key number at error
	lineBegin     = "B" // shard epoch id key number at: the handler was called
	lineEnd       = "E" // shard id at: the handler returns
	lineCut       = "C" // shard epoch at cause: an ownership was cut off
	lineRefused   = "R" // shard epoch at: an acknowledgement was refused
	lineLost      = "X" // shard at ids: pending entries without a body
	lineRecreated = "G" // shard at: the consumer group was missing
	lineEnded     = "Z" // at error: the worker cannot go on
)

// reporter writes lines. Each goes out with one write, so that a SIGKILL loses none that was
// written and cuts none in two.
type reporter struct {
	mu  sync.Mutex
	out *os.File
	buf []byte
}

// report writes one line; fields are ints, int64s and strings. Without a reader there is no point
// in going on.
func (r *reporter) report(kind string, fields ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buf = append(r.buf[:0], kind...)
	for _, f := range fields {
		r.buf = append(r.buf, ' ')
		switch f := f.(type) {
		case int:
			r.buf = strconv.AppendInt(r.buf, int64(f), 10)
		case int64:
			r.buf = strconv.AppendInt(r.buf, f, 10)
		case string:
			r.buf = append(r.buf, strings.ReplaceAll(f, "\n", "; ")...)
		default:
			panic(fmt.Sprintf("a line cannot hold a %T", f))
		}
	}
	r.buf = append(r.buf, '\n')
	if _, err := r.out.Write(r.buf); err != nil {
		fmt.Fprintln(os.Stderr, "chaos worker: nobody reads:", err)
		os.Exit(1)
	}
}

func now() int64 { return time.Now().UnixNano() }

// fields reads a line field by field and keeps the first error.
type fields struct {
	kind, rest string
	err        error
}

func parseLine(line string) *fields {
	kind, rest, _ := strings.Cut(line, " ")
	return &fields{kind: kind, rest: rest}
}

func (f *fields) text() string {
	var one string
	one, f.rest, _ = strings.Cut(f.rest, " ")
	return one
}

func (f *fields) number() int64 {
	text := f.text()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && f.err == nil {
		f.err = fmt.Errorf("%q of a line %s is no number", text, f.kind)
	}
	return n
}

func (f *fields) int() int      { return int(f.number()) }
func (f *fields) at() time.Time { return time.Unix(0, f.number()) }
