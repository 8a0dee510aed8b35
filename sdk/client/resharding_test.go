package client_test

import (
	"errors"
	"net/http"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// A re-check is a read of its own, which is repeated like any other; that there is no certificate is
// told by its code.
func TestRecheckResharding(t *testing.T) {
	t.Parallel()
	want := protocol.Resharding{ReshardingID: "r1", Recheck: &protocol.CertificateCheck{Holds: true, Shards: []protocol.ShardCheck{{State: "KEPT", Holds: true, Problems: []string{}}}}}
	var calls atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.EscapedPath() != "/coord/v1/streams/a:b/reshardings/r1" || r.URL.RawQuery != "recheck=true" {
			t.Errorf("%s %s?%s", r.Method, r.URL.EscapedPath(), r.URL.RawQuery)
		}
		switch calls.Add(1) {
		case 1:
			answer(w, http.StatusBadGateway, nil)
		case 2:
			answer(w, http.StatusOK, want)
		default:
			answer(w, http.StatusNotFound, protocol.NewError(protocol.CodeCertificateNotFound, "none"))
		}
	})
	c := connect(t, client.Config{Endpoints: []string{url}})
	got, err := c.RecheckResharding(t.Context(), "a:b", "r1")
	if err != nil || !reflect.DeepEqual(got, want) || calls.Load() != 2 {
		t.Errorf("got %+v, %v after %d calls", got, err, calls.Load())
	}
	var refused *protocol.Error
	if _, err = c.RecheckResharding(t.Context(), "a:b", "r1"); !errors.As(err, &refused) || refused.Code != protocol.CodeCertificateNotFound {
		t.Errorf("got %v", err)
	}
}
