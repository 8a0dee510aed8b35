package faultpoint

// Work says what a command is part of.
type Work string

// The kinds of work.
const (
	// Resharding is what a change of the layout consists of, the way back included: tests end the
	// coordinator at every single occurrence.
	Resharding Work = "resharding"
	// Periodic is what time alone causes; it comes in between the commands of anything else.
	Periodic Work = "periodic"
	// Request is of other calls of the API: groups, pauses, deletion, reports, audit, estimates.
	Request Work = "request"
	// Connection is what the client library and the start need; it carries no state.
	Connection Work = "connection"
)

// Point is one command or script that the coordinator sends to Redis.
type Point struct {
	Name string
	Work Work
	Does string // on Redis
	When string // it occurs
}

// Points is every point there is.
var Points = []Point{
	{"COMMIT", Resharding, "compares the token of every aggregate that it touches, writes what changed with its audit entries, publishes the nonce", "once for each turn that decides something"},
	{"LOAD", Resharding, "reads the aggregates and lease rows of a stream", "at first use, and after any doubt about the cache"},
	{"SCRIPT LOAD", Resharding, "makes a script of the shards known to a node", "when a node answered NOSCRIPT"},
	{"INFO", Resharding, "reads which replicas are connected", "before a pass whose writes replicas have to confirm; at the start"},
	{"WAIT", Resharding, "waits until replicas have the writes of this connection", "behind SEAL, DECIDE and LOOK, when a replica is connected"},
	{"TIME", Resharding, "reads time and identity of a node", "before the first pass over its shards; after lost writes"},
	{"GET", Resharding, "reads when a producer without fencing was last seen, the head of an audit log, or the session of a token", "behind the passes of SEALING and DRAINING; when an audit log is verified; each request with a session token"},
	{"PREPARE", Resharding, "holds a shard of the layout in force for a change", "PROVISIONING, each old shard, shard 0 alone first"},
	{"PROVISION", Resharding, "makes a new shard, sealed, with the groups of the registry", "PROVISIONING, each new shard"},
	{"SEAL", Resharding, "makes a shard refuse every append", "SEALING, each old shard"},
	{"EVIDENCE", Resharding, "reads whether a shard is drained", "DRAINING, each old shard; DRAINING_REMOVED, each removed shard"},
	{"DECIDE", Resharding, "changes the layout", "ACTIVATING, shard 0"},
	{"OPEN", Resharding, "stamps the layout in force and opens what is inside", "OPENING, each shard of both layouts; where a shard has lost its stamp"},
	{"SURVEY", Resharding, "reads how a shard looks", "DRAINING_REMOVED, CONVERGING; the sweep at rest"},
	{"RETIRE", Resharding, "removes or archives a drained shard, and leaves the tombstone", "RETIRING, each removed shard"},
	{"RELEASE", Resharding, "ends a change on a shard of the layout in force, which opens", "ROLLING_BACK, shard 0 alone first, then each old shard"},
	{"UNDO", Resharding, "removes a new shard that was never open", "ROLLING_BACK, each new shard"},
	{"LOOK", Resharding, "reads what shard 0 shows, and makes replicas confirm it", "ROLLING_BACK that came too late; after shards were ahead of the aggregate"},

	{"TICKER", Periodic, "takes, renews or gives back the soft lock of a stream's periodic work", "three times in its life; at an orderly stop"},
	{"ROWS", Periodic, "reads the lease rows of a group", "when a lease may have ended, and every few seconds"},
	{"SADD", Periodic, "enters a stream in the index of streams, or of former ones", "before a creation or deletion; once for each sweep"},
	{"RETAIN", Periodic, "removes a slice of what the stream's retention lets go of", "at rest, where a retention is declared, each shard"},
	{"SMEMBERS", Periodic, "reads the index of streams", "every two seconds; lists of streams and audit logs"},

	{"MKGROUP", Request, "makes a consumer group on a shard", "registration of a group, each shard of both layouts; where a removed shard lacks one"},
	{"HOLD", Request, "sets or clears the operator's pause on a shard", "pause and resume, each shard of both layouts"},
	{"RMGROUP", Request, "destroys a consumer group on a shard", "deletion of a group, each shard of both layouts"},
	{"PURGE", Request, "lets the control hash of a deleted stream expire", "deletion of a stream, each shard that it ever had"},
	{"PROBE", Request, "reads all that there is to know of a shard", "dry run, re-check of a certificate"},
	{"RECHECK", Request, "reads what can still be seen of a certificate", "re-check of a certificate, each of its shards"},
	{"SREM", Request, "takes a deleted stream out of the index", "behind the commit of a deletion"},
	{"PRODUCER", Request, "notes that a producer asked for the routing", "a routing request that names itself or does not fence"},
	{"ZREVRANGEBYSCORE", Request, "reads which producers were seen lately", "dry run"},
	{"HGETALL", Request, "reads the last reports of a group's members", "monitoring of a group"},
	{"SET", Request, "stores the session of a token", "a login that asks for a life"},
	{"PEXPIRE", Request, "renews the session of a token", "a renewal"},
	{"DEL", Request, "ends the session of a token", "a revocation"},
	{"AUDIT", Request, "appends an entry to an audit log", "a request that was refused or failed"},
	{"XREVRANGE", Request, "reads a page of an audit log", "queries of the audit log"},
	{"XRANGE", Request, "reads an audit log from the front", "verification of the audit log"},
	{"SUBSCRIBE", Request, "hears of the commits of other replicas", "when an actor of a stream starts, and when the connection was lost"},
	{"UNSUBSCRIBE", Request, "ends that", "when the last actor of a stream ends"},

	{"PING", Connection, "asks whether a node, or a connection of notices, is alive", "at the start; in silence"},
	{"CONFIG GET", Connection, "reads settings that are warned about", "at the start"},
	{"ACLCHECK", Connection, "asks which rights the user has", "at the start, and when one was missing"},
	{"HELLO", Connection, "sets up a connection", "each new connection"},
	{"AUTH", Connection, "sets up a connection", "each new connection with a password"},
	{"SELECT", Connection, "sets up a connection", "each new connection to another database than 0"},
	{"READONLY", Connection, "sets up a connection", "never: primaries alone are asked; a client for replicas would"},
	{"CLIENT SETINFO", Connection, "names the client library", "each new connection"},
	{"CLIENT MAINT_NOTIFICATIONS", Connection, "asks for notices of maintenance", "each new connection to a server that may give them"},
	{"ASKING", Connection, "lets the next command use a slot that is on its way", "a slot of a cluster moves"},
	{"COMMAND", Connection, "reads where commands have their keys", "first use of a cluster"},
	{"CLUSTER SLOTS", Connection, "reads which node has which slot", "first use of a cluster, and when it has changed"},
	{"CLUSTER SHARDS", Connection, "reads which node has which slot", "first use of a cluster, and when it has changed"},
}

// Lookup finds a point by its name.
func Lookup(name string) (Point, bool) {
	for _, p := range Points {
		if p.Name == name {
			return p, true
		}
	}
	return Point{}, false
}
