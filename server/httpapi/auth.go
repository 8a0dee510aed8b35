package httpapi

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sync/errgroup"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// User is somebody who may sign in.
type User struct {
	Name     string
	Password string
	Roles    []Role
}

// principal is who makes a request.
type principal struct {
	name    string
	roles   []Role
	session *tokenSession // of a session token; nil for all other credentials
}

// anonymous is the caller without credentials where these are not asked for.
const anonymous = "anonymous"

// account is a configured user. The password itself is not kept.
type account struct {
	name  string
	roles []Role
	hash  []byte // bcrypt
	mark  string // changes with the password; tokens carry it
}

// authenticator checks credentials. bcrypt is slow on purpose, so what it has accepted is
// remembered, by a keyed hash of name and password; there is at most one such entry for each
// user. What it refuses is not remembered, and at most one check runs for each processor.
type authenticator struct {
	accounts map[string]*account
	decoy    []byte // of any account: checked for names that do not exist, so that they take as long
	tokens   *tokenMaker
	allowAll bool

	cacheKey []byte
	accepted sync.Map // [sha256.Size]byte → *account
	checking chan struct{}
}

func newAuthenticator(cfg Config) (*authenticator, error) {
	if len(cfg.Users) == 0 && !cfg.AllowAnonymous {
		return nil, errors.New("no user is configured and anonymous access is not allowed")
	}
	a := &authenticator{
		accounts: make(map[string]*account, len(cfg.Users)),
		allowAll: cfg.AllowAnonymous,
		cacheKey: make([]byte, 32),
		checking: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	if _, err := rand.Read(a.cacheKey); err != nil {
		return nil, fmt.Errorf("random key: %w", err)
	}
	secret := cfg.TokenSecret
	if len(secret) == 0 {
		secret = make([]byte, 32)
		if _, err := rand.Read(secret); err != nil {
			return nil, fmt.Errorf("random token secret: %w", err)
		}
	}
	a.tokens = &tokenMaker{secret: secret}
	var work errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	made := make([]*account, len(cfg.Users))
	for i, u := range cfg.Users {
		if err := checkUser(u); err != nil {
			return nil, err
		}
		work.Go(func() error {
			hash, err := bcrypt.GenerateFromPassword(digest(u.Password), cfg.bcryptCost)
			made[i] = &account{name: u.Name, roles: u.Roles, hash: hash, mark: a.tokens.mark(u.Name, u.Password)}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return nil, fmt.Errorf("hash passwords: %w", err)
	}
	for _, acc := range made {
		if a.accounts[acc.name] != nil {
			return nil, fmt.Errorf("user %q is configured twice", acc.name)
		}
		a.accounts[acc.name] = acc
		a.decoy = acc.hash
	}
	return a, nil
}

func checkUser(u User) error {
	switch {
	case strings.TrimSpace(u.Name) == "" || strings.Contains(u.Name, ":"):
		return fmt.Errorf("user name %q must not be blank or contain a colon", u.Name)
	case u.Password == "":
		return fmt.Errorf("user %q has no password", u.Name)
	case len(u.Roles) == 0:
		return fmt.Errorf("user %q has no role", u.Name)
	}
	for _, r := range u.Roles {
		if !slices.Contains(Roles(), r) {
			return fmt.Errorf("user %q has the unknown role %q; roles are %v", u.Name, r, Roles())
		}
	}
	return nil
}

// digest brings a password of any length within the 72 bytes that bcrypt looks at.
func digest(password string) []byte {
	sum := sha256.Sum256([]byte(password))
	return []byte(base64.RawStdEncoding.EncodeToString(sum[:]))
}

// password checks a name and password. nil, nil when they are wrong; an error only when ctx
// ended before they could be checked.
func (a *authenticator) password(ctx context.Context, name, password string) (*account, error) {
	mac := hmac.New(sha256.New, a.cacheKey)
	mac.Write([]byte(name))
	mac.Write([]byte{0})
	mac.Write([]byte(password))
	var key [sha256.Size]byte
	mac.Sum(key[:0])
	if acc, hit := a.accepted.Load(key); hit {
		return acc.(*account), nil //nolint:forcetypeassert // only accounts are stored
	}
	select {
	case a.checking <- struct{}{}:
		defer func() { <-a.checking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	acc := a.accounts[name]
	if acc == nil {
		_ = bcrypt.CompareHashAndPassword(a.decoy, digest(password)) // for its time alone
		return nil, nil
	}
	if bcrypt.CompareHashAndPassword(acc.hash, digest(password)) != nil {
		return nil, nil
	}
	a.accepted.Store(key, acc)
	return acc, nil
}

// credentials checks the Authorization header. nil, nil when it is wrong, or absent and needed.
func (a *authenticator) credentials(r *http.Request) (*principal, error) {
	header := r.Header.Get("Authorization")
	scheme, value, _ := strings.Cut(header, " ")
	value = strings.TrimSpace(value)
	switch {
	case header == "" && a.allowAll:
		return &principal{name: anonymous, roles: []Role{RoleAdmin}}, nil
	case strings.EqualFold(scheme, "Bearer"):
		return a.bearer(value), nil
	case strings.EqualFold(scheme, "Basic"):
		decoded, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return nil, nil //nolint:nilerr // malformed credentials are wrong ones
		}
		name, password, found := strings.Cut(string(decoded), ":")
		if !found {
			return nil, nil
		}
		acc, err := a.password(r.Context(), name, password)
		if err != nil || acc == nil {
			return nil, err
		}
		return &principal{name: acc.name, roles: acc.roles}, nil
	}
	return nil, nil
}

// bearer checks what is signed into a token. It ends before its time when its user is gone or has
// another password, and never gives a role that the user no longer has. Whether the session of a
// session token lives is for the caller to find out.
func (a *authenticator) bearer(token string) *principal {
	claims, err := a.tokens.parse(token)
	if err != nil {
		return nil
	}
	acc := a.accounts[claims.Subject]
	if acc == nil || !hmac.Equal([]byte(acc.mark), []byte(claims.Mark)) {
		return nil
	}
	roles := slices.DeleteFunc(slices.Clone(claims.Roles), func(r Role) bool { return !slices.Contains(acc.roles, r) })
	return &principal{name: acc.name, roles: roles, session: claims.session()}
}

// authorize fills in who calls, and refuses whom the route does not allow.
func (h *Handler) authorize(c *call) error {
	if c.route.need == public {
		return nil
	}
	if h.origins.Check(c.r) != nil {
		return errCrossOrigin
	}
	if c.route.need == needMember && h.cfg.AnonymousMembers {
		return nil
	}
	who, err := h.auth.credentials(c.r)
	if err != nil {
		return protocol.NewError(protocol.CodeCoordinatorOverloaded, "credentials could not be checked in time")
	}
	if who == nil {
		return errUnauthenticated
	}
	// The routes about the session itself ask Redis by themselves.
	if c.route.need != needSession {
		if err := h.checkSession(c.r.Context(), who); err != nil {
			return err
		}
	}
	c.principal = who
	if !c.route.need.allows(who.roles) {
		return errForbidden
	}
	return nil
}
