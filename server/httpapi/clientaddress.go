package httpapi

import (
	"net/http"
	"net/netip"
	"strings"
)

// maxForwarded bounds how many addresses of X-Forwarded-For are looked at.
const maxForwarded = 64

// clientAddress is the address that a request came from, for audit and logs: the peer of the
// connection, unless that is a trusted proxy. Then X-Forwarded-For is walked from its right
// end, and the first address outside the trusted networks is taken; what stands left of it
// anybody may have written. No other header is believed.
func (h *Handler) clientAddress(r *http.Request) string {
	peer, valid := parseAddress(r.RemoteAddr)
	if !valid {
		return ""
	}
	chain := forwarded(r.Header)
	current := peer
	for i := len(chain) - 1; i >= 0 && h.trusted(current); i-- {
		next, valid := parseAddress(chain[i])
		if !valid {
			break // the proxy passed on something that is no address: it is the best we know
		}
		current = next
	}
	return current.String()
}

func (h *Handler) trusted(a netip.Addr) bool {
	for _, network := range h.cfg.TrustedProxies {
		if network.Contains(a) {
			return true
		}
	}
	return false
}

// forwarded is the chain of X-Forwarded-For, over all of its header lines; its right end only
// when it is long.
func forwarded(header http.Header) []string {
	var chain []string
	for _, line := range header.Values("X-Forwarded-For") {
		chain = append(chain, strings.Split(line, ",")...)
	}
	return chain[max(0, len(chain)-maxForwarded):]
}

// parseAddress reads an address with or without port, brackets and zone.
func parseAddress(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return withPort.Addr().Unmap().WithZone(""), true
	}
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, false
	}
	return addr.Unmap().WithZone(""), true
}
