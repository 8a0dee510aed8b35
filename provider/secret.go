package provider

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/terraform-plugin-log/tflog"
)

// mask stands in for a secret; it is what tflog writes too.
const mask = "***"

// secretSet is what must not be shown: passwords, tokens, private keys, in the forms in which
// they may turn up. A token file may be renewed, so that it grows while the provider runs.
type secretSet struct {
	mu       sync.RWMutex
	values   []string
	patterns []*regexp.Regexp // longest form first, so that none leaves a rest of another
}

// add makes values secret; blank ones are none.
func (s *secretSet) add(values ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.values)
	for _, v := range values {
		if strings.TrimSpace(v) != "" && !slices.Contains(s.values, v) {
			s.values = append(s.values, v)
		}
	}
	if len(s.values) == before {
		return
	}
	var forms []string
	for _, v := range s.values {
		forms = append(forms, secretForms(v)...)
	}
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	s.patterns = nil
	for _, f := range slices.Compact(forms) {
		s.patterns = append(s.patterns, secretPattern(f))
	}
}

// secretForms lists how a secret may show up: plain, URL-encoded, in a JSON text, in base64.
func secretForms(secret string) []string {
	forms := []string{
		secret, url.QueryEscape(secret), url.PathEscape(secret),
		base64.StdEncoding.EncodeToString([]byte(secret)), base64.RawStdEncoding.EncodeToString([]byte(secret)),
		base64.URLEncoding.EncodeToString([]byte(secret)), base64.RawURLEncoding.EncodeToString([]byte(secret)),
	}
	if text, err := json.Marshal(secret); err == nil {
		forms = append(forms, strings.Trim(string(text), `"`))
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// shortSecret is the length below which only whole words are masked: a password such as "key"
// would otherwise make every text unreadable, and so give itself away.
const shortSecret = 8

// secretPattern finds one form of a secret: everywhere, or as a whole word if it is short.
func secretPattern(form string) *regexp.Regexp {
	expr := regexp.QuoteMeta(form)
	if len(form) < shortSecret {
		first, _ := utf8.DecodeRuneInString(form)
		last, _ := utf8.DecodeLastRuneInString(form)
		if wordRune(first) {
			expr = `\b` + expr
		}
		if wordRune(last) {
			expr += `\b`
		}
	}
	return regexp.MustCompile(expr)
}

// wordRune is what \b takes for part of a word.
func wordRune(r rune) bool {
	return r < unicode.MaxASCII && (r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r))
}

// logContext masks the secrets in messages and fields of every log line below ctx.
func (s *secretSet) logContext(ctx context.Context) context.Context {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.patterns) == 0 {
		return ctx
	}
	ctx = tflog.MaskMessageRegexes(ctx, s.patterns...)
	return tflog.MaskAllFieldValuesRegexes(ctx, s.patterns...)
}

// redact replaces secrets in a text that did not come from this package alone.
func redact(text string, s *secretSet) string {
	if s == nil {
		return text
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range s.patterns {
		text = p.ReplaceAllLiteralString(text, mask)
	}
	return text
}
