package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// errCutShort is an answer that lost its connection on the way, whatever its status was.
var errCutShort = errors.New("cut short")

// decode reads an answer: out on success, the coordinator's refusal, or ErrUnexpectedAnswer.
func decode(resp *http.Response, out any) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w after %d bytes: %w", ErrUnexpectedAnswer, errCutShort, len(body), err)
	case len(body) > maxAnswer:
		return fmt.Errorf("%w: more than %d bytes", ErrUnexpectedAnswer, maxAnswer)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // "" then, which is not JSON
	if resp.StatusCode == http.StatusNoContent {
		if out != nil {
			return fmt.Errorf("%w: nothing in it", ErrUnexpectedAnswer)
		}
		return nil
	}
	if media != "application/json" {
		return fmt.Errorf("%w: content type %q", ErrUnexpectedAnswer, resp.Header.Get("Content-Type"))
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		if out == nil {
			return fmt.Errorf("%w: status %d, where the coordinator says %d when it is done", ErrUnexpectedAnswer, resp.StatusCode, http.StatusNoContent)
		}
		if err := json.Unmarshal(body, out); err != nil {
			return fmt.Errorf("%w: %w", ErrUnexpectedAnswer, err)
		}
		return nil
	}
	refused := new(protocol.Error)
	if err := json.Unmarshal(body, refused); err != nil {
		return fmt.Errorf("%w: %w", ErrUnexpectedAnswer, err)
	}
	if refused.Code == "" {
		return fmt.Errorf("%w: no error code in it", ErrUnexpectedAnswer)
	}
	return refused
}

// answers wants that a decoded answer is about what r asked for: what is JSON may still be the
// health page of a proxy, or another stream's out of a cache. Nothing may be concluded from those.
func answers(r *request, out any) error {
	name := func(what, got string, segment int) error {
		if segment >= len(r.path) || got == r.path[segment] {
			return nil
		}
		return fmt.Errorf("%w: about %s %q, not %q", ErrUnexpectedAnswer, what, got, r.path[segment])
	}
	has := func(is bool, what string) error {
		if is {
			return nil
		}
		return fmt.Errorf("%w: no %s in it", ErrUnexpectedAnswer, what)
	}
	switch v := out.(type) {
	case *protocol.Stream:
		return name("stream", v.StreamPrefix, 1)
	case *protocol.Preview:
		if err := has(v.Action != "", "action"); err != nil {
			return err
		}
		return name("stream", v.StreamPrefix, 1)
	case *protocol.RemovalPreview:
		if err := has(!v.TakenAt.IsZero(), "time"); err != nil {
			return err
		}
		if err := name("stream", v.StreamPrefix, 1); err != nil {
			return err
		}
		return name("group", v.ConsumerGroup, 3)
	case *protocol.Routing:
		return name("stream", v.StreamPrefix, 1)
	case *protocol.Group:
		if err := name("stream", v.StreamPrefix, 1); err != nil {
			return err
		}
		return name("group", v.ConsumerGroup, 3)
	case *protocol.Resharding:
		return name("resharding", v.ReshardingID, 3)
	case *protocol.HeartbeatResponse:
		return name("member", v.MemberID, 5)
	case *protocol.StreamList:
		return has(v.Streams != nil, "streams")
	case *protocol.GroupList:
		return has(v.Groups != nil, "groups")
	case *protocol.ReshardingList:
		return has(v.Reshardings != nil, "reshardings")
	case *protocol.AuditList:
		return has(v.Events != nil, "events")
	case *protocol.Health:
		return has(v.Status != "", "status")
	case *protocol.Compatibility:
		return has(v.Current != 0, "version")
	case *protocol.Session:
		return has(v.Authenticated, "session")
	case *protocol.TokenSession:
		return has(!v.ExpiresAt.IsZero(), "end of the session")
	case *protocol.LoginResponse:
		return has(v.AccessToken != "", "access token")
	}
	return nil
}
