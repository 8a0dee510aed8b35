package client_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// What is no answer of the coordinator about what was asked is an error, also when its status and
// its form are right: nothing is deleted, and nothing is empty, because a proxy says OK.
func TestAnswersOfSomebodyElse(t *testing.T) {
	t.Parallel()
	calls := map[string]func(t *testing.T, c *client.Client) error{
		"delete group": func(t *testing.T, c *client.Client) error {
			return c.DeleteGroup(t.Context(), "orders", "billing", protocol.DeleteGroupRequest{}, client.Call{})
		},
		"delete stream": func(t *testing.T, c *client.Client) error {
			return c.DeleteStream(t.Context(), "orders", protocol.DeleteStreamRequest{}, client.Call{})
		},
		"put stream": func(t *testing.T, c *client.Client) error {
			_, err := c.PutStream(t.Context(), "orders", protocol.PutStreamRequest{}, client.Call{IfMatch: 1})
			return err
		},
		"put group": func(t *testing.T, c *client.Client) error {
			_, err := c.PutGroup(t.Context(), "orders", "billing", protocol.PutGroupRequest{}, client.Call{IfMatch: 1})
			return err
		},
		"stream":  func(t *testing.T, c *client.Client) error { _, err := c.Stream(t.Context(), "orders"); return err },
		"streams": func(t *testing.T, c *client.Client) error { _, err := c.Streams(t.Context()); return err },
		"group": func(t *testing.T, c *client.Client) error {
			_, err := c.Group(t.Context(), "orders", "billing")
			return err
		},
		"groups": func(t *testing.T, c *client.Client) error { _, err := c.Groups(t.Context()); return err },
		"preview": func(t *testing.T, c *client.Client) error {
			_, err := c.PreviewStream(t.Context(), "orders", protocol.PutStreamRequest{}, client.Call{})
			return err
		},
		"removal preview": func(t *testing.T, c *client.Client) error {
			_, err := c.PreviewGroupRemoval(t.Context(), "orders", "billing", false, client.Call{})
			return err
		},
		"renewal": func(t *testing.T, c *client.Client) error { _, err := c.RenewToken(t.Context(), "t", 0); return err },
		"routing": func(t *testing.T, c *client.Client) error {
			_, err := c.Routing(t.Context(), "orders", client.RoutingQuery{})
			return err
		},
		"resharding": func(t *testing.T, c *client.Client) error {
			_, err := c.Resharding(t.Context(), "orders", "rs-1", "", 0)
			return err
		},
		"reshardings": func(t *testing.T, c *client.Client) error {
			_, err := c.Reshardings(t.Context(), "orders")
			return err
		},
		"audit": func(t *testing.T, c *client.Client) error {
			_, err := c.AuditEvents(t.Context(), client.AuditQuery{})
			return err
		},
		"health":        func(t *testing.T, c *client.Client) error { _, err := c.Health(t.Context()); return err },
		"compatibility": func(t *testing.T, c *client.Client) error { _, err := c.Compatibility(t.Context()); return err },
		"session":       func(t *testing.T, c *client.Client) error { _, err := c.Session(t.Context()); return err },
		"heartbeat": func(t *testing.T, c *client.Client) error {
			_, _, err := c.Heartbeat(t.Context(), "orders", "billing", protocol.HeartbeatRequest{MemberID: "m-1"})
			return err
		},
		"login": func(t *testing.T, c *client.Client) error { _, err := c.LoginFor(t.Context(), "u", "p", 0); return err },
	}
	page := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	answers := map[string]http.HandlerFunc{
		"a health page":  page(http.StatusOK, "application/json", `{"health":"UP"}`),
		"a page":         page(http.StatusOK, "text/html", "<html>log in</html>"),
		"nothing":        page(http.StatusOK, "application/json", ""),
		"null":           page(http.StatusOK, "application/json", "null"),
		"another object": page(http.StatusOK, "application/json", `{"streamPrefix":"others","consumerGroup":"b","reshardingId":"rs-2","memberId":"m-2"}`),
		"no content":     page(http.StatusNoContent, "", ""),
	}
	for what, answer := range answers {
		c := connect(t, client.Config{Endpoints: []string{serve(t, answer)}, Username: "u", Password: "p", Retries: -1})
		for name, call := range calls {
			if name == "delete stream" && what == "no content" {
				continue // just so it is answered
			}
			if err := call(t, c); err == nil || !strings.Contains(err.Error(), client.ErrUnexpectedAnswer.Error()) {
				t.Errorf("%s answered by %s: %v", name, what, err)
			}
		}
	}
}
