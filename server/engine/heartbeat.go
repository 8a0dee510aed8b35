package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
)

// Observation is the last report of a member, as it is stored beside the group. It decides
// nothing; monitoring shows it.
type Observation struct {
	Name     string                   `json:"name,omitempty"`
	Capacity protocol.Capacity        `json:"capacity"`
	Progress []protocol.ShardProgress `json:"progress,omitempty"`
}

// Heartbeat decides one heartbeat. A steady one that may be held is answered when the answer
// changes or its time is up; its report counts on arrival.
func (e *Engine) Heartbeat(ctx context.Context, prefix, groupName, memberID string, req *protocol.HeartbeatRequest) protocol.HeartbeatResponse {
	resp := e.heartbeat(ctx, prefix, groupName, memberID, req)
	e.metrics.heartbeats.WithLabelValues(string(resp.Status)).Inc()
	return resp
}

func (e *Engine) heartbeat(ctx context.Context, prefix, groupName, memberID string, req *protocol.HeartbeatRequest) protocol.HeartbeatResponse {
	if resp, refused := aggregate.RefuseForm(memberID, req); refused {
		return resp
	}
	var resp protocol.HeartbeatResponse
	report := observe(req)
	var c *command
	c = newCommand(func(t *aggregate.Turn) *protocol.Error {
		resp = t.Heartbeat(groupName, memberID, req)
		c.observation = nil // one that was refused says nothing of the member
		if resp.Status.ExtendsLease() {
			c.observation = report
		}
		g := t.Group(groupName)
		c.steady = g != nil && resp.Status == protocol.StatusOK && group.Settled(g, req)
		return nil
	})
	c.group, c.member = groupName, memberID
	if req.MaxWaitMs > 0 && req.MemberEpoch > 0 {
		c.deadline = time.Now().Add(e.longestHold(req))
		c.unchanged = func(u aggregate.Unit) bool {
			s := u.Groups[groupName]
			if s == nil || resp.Status != protocol.StatusOK {
				return false
			}
			if most := s.Config().MaxHold(); time.Duration(req.MaxWaitMs)*time.Millisecond > most {
				if latest := time.Now().Add(most); c.deadline.After(latest) {
					c.deadline = latest
				}
			}
			return group.Settled(s, req)
		}
	}
	if err := e.do(ctx, prefix, c); err != nil {
		return aggregate.Retry(memberID, req)
	}
	return resp
}

// longestHold bounds a hold before the group's own bound W is known.
func (e *Engine) longestHold(req *protocol.HeartbeatRequest) time.Duration {
	return min(time.Duration(req.MaxWaitMs)*time.Millisecond, 2*time.Minute)
}

// observe is the report worth keeping, nil when it says nothing.
func observe(req *protocol.HeartbeatRequest) []byte {
	if len(req.ShardProgress) == 0 && req.MemberEpoch > 0 && req.MemberName == nil {
		return nil
	}
	o := Observation{Capacity: req.RuntimeConsumerCapacity, Progress: req.ShardProgress}
	if req.MemberName != nil {
		o.Name = *req.MemberName
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return nil
	}
	return raw
}
