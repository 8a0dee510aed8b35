package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// PutResult is what a PUT did.
type PutResult struct {
	Stream       protocol.Stream
	Created      bool   // 201
	Resharding   bool   // 202, or 201 for the first layout: a resharding is running towards the wanted count
	ReshardingID string // its id
}

// PutStream declares the desired state of a stream.
func (c *Client) PutStream(ctx context.Context, prefix string, body protocol.PutStreamRequest, call Call) (PutResult, error) {
	var r PutResult
	status, err := c.do(ctx, &request{
		method: http.MethodPut, path: []string{"streams", prefix}, body: body, call: call,
		repeatable: call.IfMatch == 0, // a second one would find the generation of the first
	}, &r.Stream)
	if err != nil {
		return PutResult{}, err
	}
	r.Created = status == http.StatusCreated
	if status == http.StatusAccepted || r.Created {
		r.ReshardingID = r.Stream.Status.ActiveReshardingID
		r.Resharding = r.ReshardingID != ""
	}
	return r, nil
}

// PreviewStream is what PutStream with the same arguments would do, as far as it can be known; it
// changes nothing. The role READ is enough.
func (c *Client) PreviewStream(ctx context.Context, prefix string, body protocol.PutStreamRequest, call Call) (p protocol.Preview, err error) {
	_, err = c.do(ctx, &request{
		method: http.MethodPut, path: []string{"streams", prefix}, query: url.Values{"dryRun": {"true"}}, body: body, call: call, repeatable: true,
	}, &p)
	return p, err
}

// Stream reads one stream.
func (c *Client) Stream(ctx context.Context, prefix string) (s protocol.Stream, err error) {
	err = c.get(ctx, &s, "streams", prefix)
	return s, err
}

// Streams lists all.
func (c *Client) Streams(ctx context.Context) (l protocol.StreamList, err error) {
	err = c.get(ctx, &l, "streams")
	return l, err
}

// DeleteStream deletes an empty stream.
func (c *Client) DeleteStream(ctx context.Context, prefix string, body protocol.DeleteStreamRequest, call Call) error {
	_, err := c.do(ctx, &request{method: http.MethodDelete, path: []string{"streams", prefix}, body: body, call: call}, nil)
	return err
}

// PausePublishing is the operator's pause.
func (c *Client) PausePublishing(ctx context.Context, prefix string, body protocol.PauseRequest, call Call) (s protocol.Stream, err error) {
	_, err = c.do(ctx, &request{
		method: http.MethodPost, path: []string{"streams", prefix, "publishing", "pause"}, body: body, call: call,
	}, &s)
	return s, err
}

// ResumePublishing ends the operator's pause.
func (c *Client) ResumePublishing(ctx context.Context, prefix string, body protocol.ResumeRequest, call Call) (s protocol.Stream, err error) {
	_, err = c.do(ctx, &request{
		method: http.MethodPost, path: []string{"streams", prefix, "publishing", "resume"}, body: body, call: call,
	}, &s)
	return s, err
}

// get reads what stands under a path.
func (c *Client) get(ctx context.Context, out any, path ...string) error {
	_, err := c.do(ctx, &request{method: http.MethodGet, path: path, repeatable: true}, out)
	return err
}
