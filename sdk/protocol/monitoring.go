package protocol

// Session answers GET /monitoring/session: who the caller is.
type Session struct {
	Authenticated bool     `json:"authenticated"`
	Username      string   `json:"username"`
	Roles         []string `json:"roles"`
}

// Health answers GET /monitoring/health, always with 200; /readyz is for load balancers.
type Health struct {
	Status        string `json:"status"` // UP, DEGRADED
	CoordinatorID string `json:"coordinatorId"`
	Redis         string `json:"redis"` // UP, DOWN
	Loop          string `json:"loop"`
	Version       string `json:"version,omitempty"` // release of the replica that answered
}

// ReleaseVersion is a release as Compatibility names it.
type ReleaseVersion struct {
	Major     int     `json:"major"`
	Minor     int     `json:"minor"`
	Patch     int     `json:"patch"`
	Qualifier *string `json:"qualifier"`
	Version   string  `json:"version"`
}

// TimingDefaults are ISO 8601 durations.
type TimingDefaults struct {
	HeartbeatInterval string `json:"heartbeatInterval"`
	MemberLeaseTTL    string `json:"memberLeaseTtl"`
	RebalanceTimeout  string `json:"rebalanceTimeout"`
}

// CoordinationVersion is one version of the heartbeat protocol.
type CoordinationVersion struct {
	Version               int             `json:"version"`
	Status                string          `json:"status"`
	IntroducedIn          ReleaseVersion  `json:"introducedIn"`
	DeprecatedIn          *ReleaseVersion `json:"deprecatedIn"`
	MinimumSupportedUntil ReleaseVersion  `json:"minimumSupportedUntil"`
	RemovedIn             *ReleaseVersion `json:"removedIn"`
	TimingDefaults        TimingDefaults  `json:"timingDefaults"`
}

// VersionRange has both ends included.
type VersionRange struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Compatibility answers GET /monitoring/compatibility.
type Compatibility struct {
	Current   int                   `json:"currentCoordinationVersion"`
	Supported VersionRange          `json:"supportedCoordinationVersions"`
	Versions  []CoordinationVersion `json:"coordinationVersions"`
}
