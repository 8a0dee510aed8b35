package httpapi

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// query reads the parameters of a request's query; the first fault is kept in err.
type query struct {
	values url.Values
	err    error
}

func (c *call) query() *query {
	values, err := url.ParseQuery(c.r.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.refuse("query", "is not a valid query string")
	}
	return q
}

func (q *query) refuse(field, problem string) {
	if q.err == nil {
		q.err = protocol.Invalid(field, problem)
	}
}

// text is a parameter of bounded length, "" when absent.
func (q *query) text(field string) string {
	value := q.values.Get(field)
	if len(value) > protocol.MaxNameBytes {
		q.refuse(field, fmt.Sprintf("is %d bytes long; at most %d are allowed", len(value), protocol.MaxNameBytes))
		return ""
	}
	return value
}

// number is a whole number from minimum on, 0 when absent.
func (q *query) number(field string, minimum int64) int64 {
	value := q.text(field)
	if value == "" {
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < minimum {
		q.refuse(field, fmt.Sprintf("must be a whole number of at least %d", minimum))
		return 0
	}
	return n
}

// wait is a time to wait in milliseconds, cut to MaxHold.
func (q *query) wait(field string) time.Duration {
	return time.Duration(min(q.number(field, 0), MaxHold.Milliseconds())) * time.Millisecond
}

// flag is true or false, false when absent.
func (q *query) flag(field string) bool {
	value := q.text(field)
	if value == "" {
		return false
	}
	b, err := strconv.ParseBool(value)
	if err != nil {
		q.refuse(field, "must be true or false")
	}
	return b
}

// time is an RFC 3339 timestamp, the zero time when absent.
func (q *query) time(field string) time.Time {
	value := q.text(field)
	if value == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		q.refuse(field, "must be an RFC 3339 timestamp such as 2026-01-31T12:00:00Z")
	}
	return t
}

// long is a parameter that only we make, such as a cursor.
func (q *query) long(field string) string {
	const most = 4096
	value := q.values.Get(field)
	if len(value) > most {
		q.refuse(field, fmt.Sprintf("is longer than %d bytes", most))
		return ""
	}
	return value
}
