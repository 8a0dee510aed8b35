// Package faultpoint marks the places at which tests end the coordinator: before and behind each
// single command that it sends to Redis. In a normal build it does nothing. With the build tag
// "faults" the environment says what happens:
//
//	RSC_FAULT=SEAL#2        SIGKILL before the second SEAL is sent, in a pipeline too
//	RSC_FAULT=SEAL#2/after  SIGKILL right behind the reply to it
//	RSC_FAULT=SEAL#2/stop   SIGSTOP before it is sent; SIGCONT lets it go on
//	RSC_FAULT_ARMED=path    commands count from the moment on at which this file exists
//	RSC_FAULT_RECORD=path   file that gets a line "point#n<TAB>outcome" for each command
//	RSC_FAULT_TICKER_TTL=d  life of the soft lock of a stream's periodic work
//
// Points are named after the script (SEAL, COMMIT) or the command (WAIT, SADD). Points is the
// list of them; a test fails when the coordinator sends something that has no point.
package faultpoint

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Effect says what happens at a fault.
type Effect string

// The effects, as RSC_FAULT writes them behind a slash.
const (
	KillBefore Effect = ""
	KillAfter  Effect = "after"
	Stop       Effect = "stop"
)

// Fault is the n-th occurrence of a point and what happens there. The zero Fault never happens.
type Fault struct {
	Point  string
	N      int // from 1
	Effect Effect
}

// ParseFault reads POINT#n, with /after or /stop.
func ParseFault(text string) (Fault, error) {
	rest, effect, _ := strings.Cut(text, "/")
	point, number, ok := strings.Cut(rest, "#")
	n, err := strconv.Atoi(number)
	f := Fault{Point: point, N: n, Effect: Effect(effect)}
	if !ok || err != nil || n < 1 || f.String() != text {
		return Fault{}, fmt.Errorf("fault %q is not of the form POINT#n, POINT#n/after or POINT#n/stop", text)
	}
	if _, known := Lookup(point); !known {
		return Fault{}, fmt.Errorf("fault %q: there is no such point", text)
	}
	switch f.Effect {
	case KillBefore, KillAfter, Stop:
		return f, nil
	}
	return Fault{}, fmt.Errorf("fault %q: there is no such effect", text)
}

// String is what ParseFault reads.
func (f Fault) String() string {
	text := f.Point + "#" + strconv.Itoa(f.N)
	if f.Effect != KillBefore {
		text += "/" + string(f.Effect)
	}
	return text
}

// Digest is the SHA-1 in hex by which Redis knows a script.
func Digest(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}
