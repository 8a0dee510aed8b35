package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// A mutation with dryRun=true is another route than the mutation itself: the handler that it
// reaches has no way to change anything.

// previewOf is the dry run of a route, nil when it has none. Patterns are those below Base.
func previewOf(mutation *route) *route {
	for _, rt := range previews {
		rt.pattern = Base + rt.pattern
		if rt.method == mutation.method && rt.pattern == mutation.pattern {
			return &rt
		}
	}
	return nil
}

// dryRunOr sends a request that clearly asks for a dry run to preview, and every other one to
// mutation, which refuses a dryRun that it does not understand.
func dryRunOr(preview, mutation http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if dry, given, err := dryRun(r, true); err == nil && given && dry {
			preview(w, r)
			return
		}
		mutation(w, r)
	}
}

// notLetters are what other spellings of the parameter have between its words.
var notLetters = strings.NewReplacer("-", "", "_", "", " ", "")

// dryRun reads the parameter; err when it is not one of true and false, given once, or is spelled
// in another way: the call would be no dry run. A call that has a dry run knows no other parameter
// (alone), so that no misspelled one is passed over.
func dryRun(r *http.Request, alone bool) (dry, given bool, err error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return false, false, protocol.Invalid("query", "is not a valid query string; nothing was changed")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case name == "dryRun":
		case strings.EqualFold(notLetters.Replace(name), "dryRun"):
			return false, false, protocol.Invalid("dryRun", fmt.Sprintf("is spelled %q; nothing was changed", clip(name, 64)))
		case alone:
			return false, false, protocol.Invalid("query", fmt.Sprintf("has %q, which is no parameter of this call; nothing was changed", clip(name, 64)))
		}
	}
	list, given := values["dryRun"]
	if !given {
		return false, false, nil
	}
	dry, err = strconv.ParseBool(list[0])
	if err != nil || len(list) > 1 {
		return false, true, protocol.Invalid("dryRun", "must be true or false, once; nothing was changed")
	}
	return dry, true, nil
}

// checkNoDryRun refuses a mutation that may have been meant as a dry run.
func (c *call) checkNoDryRun() error {
	previewed := previewOf(c.route) != nil
	dry, given, err := dryRun(c.r, previewed)
	switch {
	case err != nil:
		return err
	case !given:
		return nil
	case dry || !previewed:
		return protocol.Invalid("dryRun", "is not supported by this call; nothing was changed")
	}
	return nil
}
