package shardscript

import (
	"fmt"
	"strconv"
	"strings"
)

// Control is a control hash (docs/protocol/resharding.md 1.3). A number is 0 both when its
// field is 0 and when it is missing, so HasLayout tells whether (Epoch, Count) is known at all.
type Control struct {
	Present      bool // any field is there
	HasLayout    bool // epoch and count are there; without them the shard is UNFENCED
	Epoch        int64
	Count        int
	Rev          int64
	By           string
	Gate         string
	Until, Hold  int64 // ms of Redis time, 0 for none
	SealedLastID string
	Aborted      string
	Retired      string
	Purged       bool // its stream was deleted: to another one of that name the shard is unknown
	High         int
	Owners       map[string]string // group → stored owner; empty in replies of scripts
}

// ParseControl reads a control hash as HGETALL gives it, for those who look at shard 0
// themselves. A number that is none is an error: it is never read as zero.
func ParseControl(fields map[string]string) (Control, error) {
	c := Control{
		Present: len(fields) > 0, By: fields["by"], Gate: fields["gate"],
		SealedLastID: fields["sealedLastId"], Aborted: fields["aborted"], Retired: fields["retired"],
		Purged: fields["purged"] != "",
	}
	var count, high int64
	for name, to := range map[string]*int64{
		"epoch": &c.Epoch, "count": &count, "rev": &c.Rev, "until": &c.Until, "hold": &c.Hold, "high": &high,
	} {
		text, ok := fields[name]
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return Control{}, fmt.Errorf("field %s of a control hash: %w", name, err)
		}
		*to = n
	}
	c.Count, c.High = int(count), int(high)
	_, epoch := fields["epoch"]
	_, counted := fields["count"]
	c.HasLayout = epoch && counted
	for name, value := range fields {
		if group, ok := strings.CutPrefix(name, "owner:"); ok {
			if c.Owners == nil {
				c.Owners = map[string]string{}
			}
			c.Owners[group] = value
		}
	}
	return c, nil
}

// ParseOwner reads a value of Control.Owners.
func ParseOwner(text string) (Owner, error) {
	parts := strings.SplitN(text, " ", 3)
	if len(parts) != 3 {
		return Owner{}, fmt.Errorf("owner %q has %d parts", text, len(parts))
	}
	epoch, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return Owner{}, fmt.Errorf("owner %q: %w", text, err)
	}
	return Owner{Epoch: epoch, MemberID: parts[1], Incarnation: parts[2]}, nil
}
