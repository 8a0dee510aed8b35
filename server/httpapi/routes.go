package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Base is the path under which the API stands.
const Base = "/coord/v1"

// route is one line of the API's table.
type route struct {
	method, pattern string
	need            need
	action          action // of an audited mutation; "" for everything else
	handle          func(*Handler, context.Context, *call) (reply, error)
}

// mutation says whether the request is an admin mutation: audited, and carried to its end even
// when the client goes away.
func (rt *route) mutation() bool { return rt.action != "" }

// operations stand outside Base and need no credentials.
var operations = []route{
	{"GET", "/livez", public, "", (*Handler).livez},
	{"GET", "/readyz", public, "", (*Handler).readyz},
	{"GET", "/openapi.yaml", public, "", (*Handler).openAPI},
}

// routes is the API. S is a stream, G one of its groups.
var routes = []route{
	{"POST", "/auth/login", public, "", (*Handler).login},
	{"POST", "/auth/renew", needSession, "", (*Handler).renewSession},
	{"POST", "/auth/revoke", needSession, "", (*Handler).revokeSession},

	{"GET", "/streams", needRead, "", (*Handler).listStreams},
	{"GET", S, needRead, "", (*Handler).getStream},
	{"PUT", S, needWrite, putStream, (*Handler).putStream},
	{"POST", S, needWrite, createStream, (*Handler).createStream},
	{"DELETE", S, needWrite, deleteStream, (*Handler).deleteStream},
	{"POST", S + "/scale", needWrite, scaleStream, (*Handler).scaleStream},
	{"GET", S + "/routing", needRouting, "", (*Handler).getRouting},
	{"POST", S + "/publishing/pause", needWrite, pausePublishing, (*Handler).pausePublishing},
	{"POST", S + "/publishing/resume", needWrite, resumePublishing, (*Handler).resumePublishing},

	{"GET", S + "/reshardings", needRead, "", (*Handler).listReshardings},
	{"GET", S + "/reshardings/{reshardingId}", needRead, "", (*Handler).getResharding},
	{"POST", S + "/reshardings/{reshardingId}/rollback", needWrite, rollbackResharding, (*Handler).rollbackResharding},

	{"GET", G, needRead, "", (*Handler).getGroup},
	{"PUT", G, needWrite, putGroup, (*Handler).putGroup},
	{"POST", G, needWrite, createGroup, (*Handler).createGroup},
	{"DELETE", G, needWrite, deleteGroup, (*Handler).deleteGroup},
	{"POST", G + "/scale", needWrite, scaleGroup, (*Handler).scaleGroup},
	{"GET", G + "/producer-routing", needRead, "", (*Handler).getProducerRouting},
	{"GET", G + "/migrations/{reshardingId}", needRead, "", (*Handler).getMigration},
	{"POST", G + "/migrations/{reshardingId}/rollback", needWrite, rollbackMigration, (*Handler).rollbackMigration},
	{"POST", G + "/members/{memberId}/heartbeat", needMember, "", (*Handler).heartbeat},

	{"GET", "/monitoring/session", needRead, "", (*Handler).getSession},
	{"GET", "/monitoring/health", needRead, "", (*Handler).getHealth},
	{"GET", "/monitoring/compatibility", needRead, "", (*Handler).getCompatibility},
	{"GET", "/monitoring/groups", needRead, "", (*Handler).listGroups},
	{"GET", "/monitoring" + S + "/retention", needRead, "", (*Handler).getRetention},
	{"GET", "/monitoring" + G, needRead, "", (*Handler).getGroup},
	{"GET", "/monitoring" + G + "/members", needRead, "", (*Handler).listMembers},
	{"GET", "/monitoring" + G + "/assignments", needRead, "", (*Handler).getAssignments},
	{"GET", "/monitoring" + G + "/consumption", needRead, "", (*Handler).getConsumption},
	{"GET", "/monitoring" + G + "/migrations", needRead, "", (*Handler).listMigrations},

	{"GET", "/audit/events", needRead, "", (*Handler).listAuditEvents},
}

// previews are the dry runs of mutations. They are reads: not audited, and open to whoever may read.
var previews = []route{
	{"PUT", S, needRead, "", (*Handler).previewStream},
	{"DELETE", G, needRead, "", (*Handler).previewGroupRemoval},
}

// The two objects that most paths are about.
const (
	S = "/streams/{streamPrefix}"
	G = S + "/groups/{consumerGroup}"
)

// unmatched stands for every path and method that is not in the table, in metrics and audit.
const unmatched = "unmatched"

func (h *Handler) buildRoutes() *chi.Mux {
	mux := chi.NewRouter()
	for i := range operations {
		rt := &operations[i]
		mux.Method(rt.method, rt.pattern, h.serve(rt))
		mux.Method(http.MethodHead, rt.pattern, h.serve(rt)) // load balancers ask like this
	}
	mux.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(h.cfg.Registry, promhttp.HandlerOpts{}))
	for i := range routes {
		rt := routes[i]
		rt.pattern = Base + rt.pattern
		serve := h.serve(&rt)
		if preview := previewOf(&rt); preview != nil {
			serve = dryRunOr(h.serve(preview), serve)
		}
		mux.Method(rt.method, rt.pattern, serve)
	}
	mux.NotFound(h.refuseUnmatched)
	mux.MethodNotAllowed(h.refuseUnmatched)
	return mux
}

// refuseUnmatched answers what no route matches: 401 and 403 first, as everywhere under Base,
// then 405 where another method would be served, else 404. A mutation of something under
// /streams is audited like any other that is refused.
func (h *Handler) refuseUnmatched(w http.ResponseWriter, r *http.Request) {
	rt := route{method: r.Method, pattern: unmatched, need: public}
	path := r.URL.EscapedPath()
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
	if path == Base || strings.HasPrefix(path, Base+"/") {
		rt.need = needWrite
		if safe {
			rt.need = needRead
		}
	}
	if !safe && strings.HasPrefix(path, Base+"/streams/") {
		rt.action = unknownAction
	}
	allowed := h.allowedMethods(path)
	rt.handle = func(*Handler, context.Context, *call) (reply, error) {
		if len(allowed) == 0 {
			return reply{}, errNoSuchPath
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		return reply{}, errMethodNotAllowed
	}
	h.serve(&rt)(w, r)
}

// allowedMethods lists the methods that the table has for a path.
func (h *Handler) allowedMethods(path string) []string {
	var allowed []string
	for _, m := range []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut} {
		if h.mux.Match(chi.NewRouteContext(), m, path) {
			allowed = append(allowed, m)
		}
	}
	slices.Sort(allowed)
	return allowed
}
