package simulation

import (
	"strconv"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

func num(n int64) string { return strconv.FormatInt(n, 10) }

// since shows an instant as milliseconds of the run.
func since(at protocol.Instant) protocol.Instant {
	if at == 0 {
		return 0
	}
	return at - start
}

// showControl writes what a reply shows of a control hash.
func showControl(c stream.Control) string {
	if !c.Present {
		return "no control hash"
	}
	text := "e" + num(c.Epoch) + "/" + num(int64(c.Count)) + " rev " + num(c.Rev)
	if c.High != 0 {
		text += " high " + num(int64(c.High))
	}
	if c.Gate != "" {
		text += " gate " + c.Gate
	}
	if c.Until != 0 {
		text += " until " + num(int64(since(c.Until)))
	}
	if c.Hold != 0 {
		text += " hold " + num(int64(since(c.Hold)))
	}
	if c.Aborted != "" {
		text += " aborted " + c.Aborted
	}
	if c.Retired != "" {
		text += " retired " + c.Retired
	}
	if c.Sealed {
		text += " sealed"
	}
	if !c.StreamExists {
		text += " no stream"
	}
	return text
}
