package httpapi

import "slices"

// Role is what a user may do. WRITE includes READ but not MEMBER; MONITOR is READ under
// another name; MEMBER may send heartbeats and read a stream's routing, nothing else.
type Role string

// The roles.
const (
	RoleRead    Role = "READ"
	RoleWrite   Role = "WRITE"
	RoleAdmin   Role = "ADMIN"
	RoleMonitor Role = "MONITOR"
	RoleMember  Role = "MEMBER"
)

// Roles lists all of them, sorted.
func Roles() []Role { return []Role{RoleAdmin, RoleMember, RoleMonitor, RoleRead, RoleWrite} }

// need is what a route asks of its caller.
type need int

const (
	public      need = iota // no credentials
	needRead                // READ, MONITOR, WRITE
	needWrite               // WRITE
	needMember              // MEMBER; nothing at all when anonymous members are allowed
	needRouting             // whoever may read, and members, which need it to work
	needSession             // a session token, whatever its roles and whether its session lives: the handler looks
)

// allows says whether any of the roles satisfies n. ADMIN satisfies all.
func (n need) allows(roles []Role) bool {
	has := func(wanted ...Role) bool {
		return slices.ContainsFunc(roles, func(r Role) bool { return r == RoleAdmin || slices.Contains(wanted, r) })
	}
	switch n {
	case public, needSession:
		return true
	case needRead:
		return has(RoleRead, RoleMonitor, RoleWrite)
	case needWrite:
		return has(RoleWrite)
	case needMember:
		return has(RoleMember)
	case needRouting:
		return has(RoleRead, RoleMonitor, RoleWrite, RoleMember)
	default:
		return false
	}
}

func roleNames(roles []Role) []string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	slices.Sort(names)
	return names
}
