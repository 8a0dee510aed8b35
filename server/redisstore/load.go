package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// groupNames remembers the groups of each stream at its last load: what the next load asks for.
type groupNames struct {
	mu sync.Mutex
	of map[string][]string
}

func (n *groupNames) get(prefix string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of[prefix]
}

func (n *groupNames) set(prefix string, names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil {
		n.of = map[string][]string{}
	}
	n.of[prefix] = names
}

// forget drops the names of a stream that is not served any more.
func (n *groupNames) forget(prefix string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.of, prefix)
}

// Load reads everything of one stream in one atomic step. ErrNotFound comes with a Unit that has
// only Time and Identity; ErrUnreadable with nil.
func (s *Store) Load(ctx context.Context, prefix string) (*Unit, error) {
	u, err := s.load(ctx, prefix)
	if err != nil {
		return u, fmt.Errorf("load stream %q: %w", prefix, err)
	}
	return u, nil
}

// load asks for the groups that the stream had last time. The reply tells whether these are its
// groups: it was one atomic look, so nothing can have come in between.
func (s *Store) load(ctx context.Context, prefix string) (*Unit, error) {
	names := s.names.get(prefix)
	for range 10 { // the registry changes between two looks only when somebody registers groups very fast
		u, actual, err := s.loadWith(ctx, prefix, names)
		if err != nil || slices.Equal(actual, names) {
			return u, err
		}
		names = actual
	}
	return nil, fmt.Errorf("its groups changed at every look")
}

// loadWith is one look at the stream and the groups called names. It returns a unit only when
// these are the stream's groups.
func (s *Store) loadWith(ctx context.Context, prefix string, names []string) (*Unit, []string, error) {
	keys := make([]string, 0, 1+2*len(names))
	keys = append(keys, s.keys.stream(prefix))
	for _, name := range names {
		keys = append(keys, s.keys.group(prefix, name), s.keys.leases(prefix, name))
	}
	sent := s.clocks.local()
	v, err := loadScript.Run(ctx, s.cfg.Client, keys).Slice()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, names, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if err != nil {
		return nil, names, s.explain(ctx, err, s.keys.stream(prefix), s.rightsOfStream(prefix))
	}
	u := &Unit{Groups: map[string]*group.State{}, GroupTokens: map[string]Token{}, Leases: map[string]group.Leases{}}
	var rest []any
	if u.Time, u.Identity, rest, err = readHead(v); err != nil {
		return nil, names, err
	}
	s.clocks.observe(prefix, u.Time, sent)
	if len(rest) != 1+2*len(names) {
		return nil, names, fmt.Errorf("reply has %d parts for %d groups", len(rest), len(names))
	}
	raw, err := readStored("the stream aggregate", rest[0])
	if err != nil {
		return nil, names, err
	}
	if !raw.ok {
		return u, names, ErrNotFound
	}
	if u.Stream, err = decode[stream.State]("the stream aggregate", raw.text); err != nil {
		return nil, names, err
	}
	u.StreamToken = raw.token
	if u.Stream.Prefix != prefix || u.Stream.SchemaVersion != schemaVersion {
		return nil, names, fmt.Errorf("%w: the stream aggregate is of stream %q, schema %d", ErrUnreadable, u.Stream.Prefix, u.Stream.SchemaVersion)
	}
	actual := make([]string, 0, len(u.Stream.Groups))
	for name := range u.Stream.Groups {
		actual = append(actual, name)
	}
	slices.Sort(actual)
	if !slices.Equal(actual, names) {
		return nil, actual, nil
	}
	for i, name := range names {
		if err := u.addGroup(prefix, name, rest[1+2*i], rest[2+2*i]); err != nil {
			return nil, names, err
		}
	}
	s.names.set(prefix, names)
	return u, names, nil
}

// addGroup takes one group of a load. The registry lists it, so it must be there.
func (u *Unit) addGroup(prefix, name string, aggregate, rows any) error {
	what := fmt.Sprintf("the aggregate of group %q", name)
	raw, err := readStored(what, aggregate)
	if err != nil {
		return err
	}
	if !raw.ok {
		return fmt.Errorf("%w: %s is missing", ErrUnreadable, what)
	}
	g, err := decode[group.State](what, raw.text)
	if err != nil {
		return err
	}
	if g.StreamPrefix != prefix || g.Group != name || g.SchemaVersion != schemaVersion {
		return fmt.Errorf("%w: %s is of group %q of stream %q, schema %d", ErrUnreadable, what, g.Group, g.StreamPrefix, g.SchemaVersion)
	}
	leases, err := readRows(rows)
	if err != nil {
		return err
	}
	u.Groups[name], u.GroupTokens[name], u.Leases[name] = g, raw.token, leases
	return nil
}

// Leases reads the lease rows of one group that end before until (0: all).
func (s *Store) Leases(ctx context.Context, prefix, groupName string, until protocol.Instant) (group.Leases, protocol.Instant, error) {
	sent := s.clocks.local()
	v, err := rowsScript.Run(ctx, s.cfg.Client, []string{s.keys.leases(prefix, groupName)}, until.String()).Slice()
	if err != nil {
		return nil, 0, fmt.Errorf("leases of group %q of stream %q: %w", groupName, prefix, err)
	}
	at, _, rest, err := readHead(v)
	if err != nil || len(rest) != 1 {
		return nil, 0, fmt.Errorf("leases of group %q of stream %q: reply of %d parts: %w", groupName, prefix, len(rest), err)
	}
	s.clocks.observe(prefix, at, sent)
	rows, err := readRows(rest[0])
	if err != nil {
		return nil, 0, fmt.Errorf("leases of group %q of stream %q: %w", groupName, prefix, err)
	}
	return rows, at, nil
}
