package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net"
	"net/http"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/go-playground/validator/v10"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// readBody reads the whole body within the limit and its time, before anything else is looked
// at: a body that is too large is refused whoever sent it. GET has none.
func (h *Handler) readBody(c *call) ([]byte, error) {
	r := c.r
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	tooLarge := protocol.NewError(protocol.CodeBodyTooLarge, fmt.Sprintf("the body is larger than %d bytes", h.cfg.BodyLimit))
	if r.ContentLength > h.cfg.BodyLimit {
		c.w.Header().Set("Connection", "close") // rather than receiving all of it
		return nil, tooLarge
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, protocol.Invalid("Content-Encoding", "compressed bodies are not accepted")
	}
	rc := http.NewResponseController(c.w)
	if err := rc.SetReadDeadline(time.Now().Add(h.cfg.BodyTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("set read deadline: %w", err)
	}
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(c.w, r.Body, h.cfg.BodyLimit))
	var over *http.MaxBytesError
	var network net.Error
	switch {
	case errors.As(err, &over):
		return nil, tooLarge
	case errors.As(err, &network) && network.Timeout():
		c.w.Header().Set("Connection", "close")
		return nil, protocol.Invalid("body", fmt.Sprintf("was not received within %s", h.cfg.BodyTimeout))
	case err != nil:
		return nil, protocol.Invalid("body", "could not be received")
	}
	if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("clear read deadline: %w", err)
	}
	return buf.Bytes(), nil
}

// strictness of a decoder: bodies of our own calls refuse unknown fields, so that a typing
// error is not silently a default; bodies of the reference's calls ignore them.
type strictness bool

const (
	strict  strictness = true
	lenient strictness = false
)

// decode reads the body of an admin request into into, a pointer to a struct of package
// protocol, and checks its validator tags. A missing body is refused.
func (c *call) decode(into any, mode strictness) error {
	if len(bytes.TrimSpace(c.body)) == 0 {
		return protocol.Invalid("body", "is missing; a JSON object is required")
	}
	if err := c.checkContentType(); err != nil {
		return err
	}
	if err := decodeJSON(c.body, into, mode); err != nil {
		return err
	}
	c.note(into)
	return check(into)
}

// decodeOptional is decode for calls whose body may be left out.
func (c *call) decodeOptional(into any, mode strictness) error {
	if len(bytes.TrimSpace(c.body)) == 0 {
		return nil
	}
	return c.decode(into, mode)
}

func (c *call) checkContentType() error {
	given := c.r.Header.Get("Content-Type")
	if given == "" {
		return nil
	}
	media, _, err := mime.ParseMediaType(given)
	if err != nil || (media != "application/json" && !strings.HasSuffix(media, "+json")) {
		return protocol.Invalid("Content-Type", "must be application/json")
	}
	return nil
}

// decodeJSON reads exactly one JSON object.
func decodeJSON(data []byte, into any, mode strictness) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if mode == strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(into); err != nil {
		return invalidJSON(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return protocol.Invalid("body", "has something after the JSON object")
	}
	if trimmed := bytes.TrimSpace(data); trimmed[0] != '{' {
		return protocol.Invalid("body", "must be a JSON object")
	}
	return nil
}

// invalidJSON says what is wrong with a body in words of JSON.
func invalidJSON(err error) *protocol.Error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := jsonPath(kind.Field)
		if field == "" {
			return protocol.Invalid("body", "must be a JSON object, not "+kind.Value)
		}
		return protocol.Invalid(field, "must be "+expected(kind.Type)+", not "+clip(kind.Value, 64))
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return protocol.Invalid("body", fmt.Sprintf("is not valid JSON (byte %d)", syntax.Offset))
	}
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return protocol.Invalid(clip(strings.Trim(name, `"`), 64), "is not a field of this request")
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return protocol.Invalid("body", "is not complete JSON")
	}
	return protocol.Invalid("body", "is not the JSON that this request needs")
}

// jsonPath drops the Go names of embedded structs from a path of JSON names.
func jsonPath(path string) string {
	parts := strings.Split(path, ".")
	kept := parts[:0]
	for _, p := range parts {
		if p != "" && !unicode.IsUpper(rune(p[0])) {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, ".")
}

func expected(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number that fits into 64 bits"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	default:
		return "a " + t.Kind().String()
	}
}

// validate reads the validator tags of package protocol. It caches struct types and is safe
// for concurrent use.
var validate = func() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return name
	})
	return v
}()

// check applies the validator tags, and refuses blank texts where one is required. All faults
// are listed; the message has them joined.
func check(body any) error {
	err := validate.Struct(body)
	var faults validator.ValidationErrors
	if err == nil {
		return nil
	}
	if !errors.As(err, &faults) {
		return fmt.Errorf("validate %T: %w", body, err)
	}
	details := make([]protocol.Detail, 0, len(faults))
	texts := make([]string, 0, len(faults))
	for _, f := range faults {
		_, path, _ := strings.Cut(f.Namespace(), ".") // without the name of the struct
		d := protocol.Detail{Field: jsonPath(path), Message: rule(f)}
		details = append(details, d)
		texts = append(texts, d.Field+": "+d.Message)
	}
	return protocol.NewError(protocol.CodeInvalidRequest, strings.Join(texts, "; "), details...)
}

// rule says what a validator tag asks for.
func rule(f validator.FieldError) string {
	text := f.Kind() == reflect.String
	switch f.Tag() {
	case "required":
		return "is required and must not be empty"
	case "oneof":
		return "must be one of " + strings.ReplaceAll(f.Param(), " ", ", ")
	case "min":
		return fmt.Sprintf("is %v; it must be at least %s", f.Value(), f.Param())
	case "max":
		switch {
		case text:
			return "must not be longer than " + f.Param() + " characters"
		case f.Kind() == reflect.Slice:
			return "must not have more than " + f.Param() + " entries"
		}
		return fmt.Sprintf("is %v; it must be at most %s", f.Value(), f.Param())
	default:
		return "does not satisfy " + f.Tag()
	}
}

// notBlank refuses texts of white space alone, which "required" lets pass.
func notBlank(field, value string) error {
	if strings.TrimSpace(value) == "" {
		return protocol.Invalid(field, "must not be blank")
	}
	return nil
}

// shardCount checks a shard count of a body.
func shardCount(field string, n *int64, minimum int64) (int, error) {
	if n == nil {
		return 0, protocol.Invalid(field, "is required")
	}
	if refused := protocol.CheckShardCount(field, *n, minimum); refused != nil {
		return 0, refused
	}
	return int(*n), nil
}

// missing marks an integer of a body that was not sent. No client sends it on purpose.
const missing = math.MinInt64
