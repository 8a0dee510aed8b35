package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// taken says, at the plan of a creation, that the stream exists: as the creation that an apply left
// behind when it was killed, with nothing in it, or as somebody else's.
func (c *connection) taken(ctx context.Context, p protocol.Preview, want protocol.StreamSpec, private privateData, diags *diag.Diagnostics) {
	if p.FromShardCount == 0 && p.ReshardingID == "" {
		return // nothing to lose
	}
	s, err := c.client.Stream(ctx, p.StreamPrefix)
	_, replaces := recallSeen(ctx, private) // something that goes first, and has another name, or is only forgotten
	var foreign string
	if err == nil {
		foreign, err = c.foreign(ctx, s, want)
	}
	switch {
	case err != nil:
		diags.AddWarning(uncheckedTitle, redact(fmt.Sprintf("Stream %q exists already: %v", p.StreamPrefix, err), c.secrets))
	case foreign == "":
		diags.AddWarning("Stream exists already", fmt.Sprintf(
			"Stream %q exists, with just these settings, made by %q as this one would be: so a creation leaves it behind whose apply was killed. It is taken into the state as it is, unless the plan replaces it.", p.StreamPrefix, c.requestedBy))
	case !replaces && (foreign == resharded || !c.claims.inState(streamName(p.StreamPrefix))):
		diags.Append(inTheWay("Stream", p.StreamPrefix, redact(foreign, c.secrets), p.StreamPrefix))
	default:
		diags.Append(exists("Stream", p.StreamPrefix, redact(foreign, c.secrets), p.StreamPrefix))
	}
}

// resharded is why a stream is somebody else's that has all that is wanted of it.
const resharded = "it has been resharded since it was made"

// foreign says why a stream that is there before its creation is somebody else's; "" when it has no
// shards, and so nothing to lose, or when it is just what this creation, by the same requester,
// leaves behind when its apply is killed.
func (c *connection) foreign(ctx context.Context, s protocol.Stream, want protocol.StreamSpec) (string, error) {
	if s.Status.ShardCount == 0 && s.Status.ActiveReshardingID == "" {
		return "", nil
	}
	if differences := specDifferences(s.Spec, want); len(differences) > 0 {
		return strings.Join(differences, "; "), nil
	}
	last, err := c.lastResharding(ctx, s)
	switch {
	case err != nil:
		return "", err
	case last == nil:
		return "it is not known who made it", nil
	case last.FromShardCount != 0:
		return resharded, nil
	case last.RequestedBy != c.requestedBy:
		return fmt.Sprintf("it was made by %q, and this is %q", last.RequestedBy, c.requestedBy), nil
	}
	return "", nil
}
