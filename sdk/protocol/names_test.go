package protocol

import (
	"strings"
	"testing"
)

func TestCheckName(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"orders", "a:b", "…", "€", "a.b", "..a", "a\\b", "*", strings.Repeat("a", MaxNameBytes)} {
		if refused := CheckName("streamPrefix", good); refused != nil {
			t.Errorf("%q: %v", good, refused)
		}
	}
	for _, bad := range []string{
		"", " ", "a b", "a\u00a0b", "a\tb", "a\nb", "a\x00b", "a\x7fb", "a/b", "a{b", "a}b", "\xff", ".", "..",
		strings.Repeat("a", MaxNameBytes+1),
	} {
		refused := CheckName("streamPrefix", bad)
		if refused == nil || refused.Code != CodeInvalidRequest || len(refused.Details) != 1 || refused.Details[0].Field != "streamPrefix" {
			t.Errorf("%q: got %v", bad, refused)
		}
	}
}
