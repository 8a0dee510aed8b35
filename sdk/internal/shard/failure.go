package shard

import (
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Failure says what is known of a command that failed.
type Failure int

// The kinds.
const (
	// Refused: Redis did not execute it, and will not execute the same command later either.
	Refused Failure = iota
	// Retriable: it was not executed, and may be later.
	Retriable
	// Lost: it may have been executed.
	Lost
)

// passing are the errors of a server that will be able to execute the command later.
var passing = []string{
	"LOADING ", "READONLY ", "CLUSTERDOWN ", "TRYAGAIN ", "MASTERDOWN ", "NOREPLICAS ", "OOM ", "BUSY ",
	"MISCONF ", "MOVED ", "ASK ", "ERR max number of clients reached",
}

// FailureOf classifies err, which is not nil and not redis.Nil.
func FailureOf(err error) Failure {
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial",
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return Retriable
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return Lost
	}
	text := reply.Error()
	for _, prefix := range passing {
		if strings.HasPrefix(text, prefix) {
			return Retriable
		}
	}
	if strings.HasPrefix(text, "ERR") || strings.HasPrefix(text, "UNBLOCKED") {
		return Lost // may come from the middle of a script
	}
	return Refused // NOPERM, NOAUTH, WRONGPASS, WRONGTYPE
}
