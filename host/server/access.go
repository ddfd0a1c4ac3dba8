package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"sess/plugin"
)

// access decides who may call. It never changes.
type access struct {
	token   [sha256.Size]byte // of the token; comparing hashes takes the same time for every length
	tls     bool
	hosts   []string // lower case: names, or names with ports
	origins []string // as originOf writes them
}

func newAccess(o Options, tls bool) (*access, error) {
	if strings.TrimSpace(o.Token) == "" {
		return nil, plugin.Errorf(plugin.Usage, "gateway.token is empty: without a token everybody could call").
			WithHint("remove gateway.token and SESS_GATEWAY_TOKEN to have one made, or give one")
	}
	a := &access{token: sha256.Sum256([]byte(o.Token)), tls: tls}
	if host, _, err := net.SplitHostPort(o.Listen); err == nil && host != "" {
		a.hosts = append(a.hosts, strings.ToLower(host))
	}
	for _, h := range o.AllowedHosts {
		if h == "" || strings.ContainsAny(h, "/*@ ") {
			return nil, plugin.Errorf(plugin.Usage, "gateway.allowedHosts: %q is not a host", h).
				WithHint(`write a name as it stands in the address, such as "sess.example" or "sess.example:8443"`)
		}
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = strings.Trim(h, "[]") // an IPv6 address without a port
		}
		a.hosts = append(a.hosts, strings.ToLower(h))
	}
	for _, origin := range o.AllowedOrigins {
		normal, ok := originOf(origin)
		if !ok {
			return nil, plugin.Errorf(plugin.Usage, "gateway.allowedOrigins: %q is not an origin", origin).
				WithHint(`write scheme and host, and a port where there is one, such as "https://notes.example"`)
		}
		a.origins = append(a.origins, normal)
	}
	return a, nil
}

// originOf writes an origin in one way: lower case, without the port that its
// scheme has anyway. Anything but scheme, host and port is none.
func originOf(text string) (string, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme == "" || u.Opaque != "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || strings.Contains(u.Host, "*") {
		return "", false
	}
	return joinOrigin(u.Scheme, u.Host), true
}

func joinOrigin(scheme, host string) string {
	scheme, host = strings.ToLower(scheme), strings.ToLower(host)
	switch scheme {
	case "http", "ws":
		host = strings.TrimSuffix(host, ":80")
	case "https", "wss":
		host = strings.TrimSuffix(host, ":443")
	}
	return scheme + "://" + host
}

// checkHost refuses a request that names a host which is not this server's: a
// page whose name was made to lead here would otherwise count as the server's
// own (DNS rebinding).
func (a *access) checkHost(r *http.Request) error {
	full := strings.ToLower(r.Host)
	host := full
	if name, _, err := net.SplitHostPort(full); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if loopback(host) || slices.Contains(a.hosts, host) || slices.Contains(a.hosts, full) {
		return nil
	}
	// The address that the connection arrived at is no name that could be made to
	// lead elsewhere.
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		if ip := net.ParseIP(host); ip != nil && ip.Equal(local.IP) {
			return nil
		}
	}
	return plugin.Errorf(plugin.Denied, "the host %q is not one of this gateway", r.Host).
		WithHint("add it to gateway.allowedHosts in the configuration if it leads here")
}

// checkOrigin decides about the page that a request comes from. cors is the
// origin that a browser has to be told it may read the answer; "" where it need
// not, or must not, be told.
func (a *access) checkOrigin(r *http.Request) (cors string, err error) {
	given := r.Header.Values("Origin")
	if len(given) == 0 {
		return "", nil // not a browser, or a page of ours that only reads
	}
	if origin, ok := originOf(given[0]); ok && len(given) == 1 {
		scheme := "http"
		if a.tls {
			scheme = "https"
		}
		if origin == joinOrigin(scheme, r.Host) {
			return "", nil
		}
		if slices.Contains(a.origins, origin) {
			return given[0], nil
		}
	}
	return "", plugin.Errorf(plugin.Denied, "pages of the origin %q may not call this gateway", strings.Join(given, ", ")).
		WithHint("add it to gateway.allowedOrigins in the configuration if it is to be trusted")
}

// protocolPrefix begins the name of the WebSocket subprotocol that carries the
// token, since a page cannot set the header Authorization there.
const protocolPrefix = "bearer."

// checkToken is nil for a request with the right token. What was wrong with
// another one is not said.
func (a *access) checkToken(r *http.Request) error {
	token, ok := requestToken(r)
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], a.token[:]) == 1 && ok {
		return nil
	}
	return plugin.Errorf(plugin.Denied, "the gateway's token is missing or wrong").
		WithHint("send the header Authorization: Bearer with what is printed by: sess gateway token --show")
}

// requestToken reads the one token that a request shows.
func requestToken(r *http.Request) (string, bool) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 && upgrade(r) {
		return protocolToken(r)
	}
	if len(headers) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(headers[0], " ")
	return token, ok && strings.EqualFold(scheme, "Bearer") // RFC 9110, section 11.1
}

func upgrade(r *http.Request) bool { return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") }

// protocolToken reads the token among the subprotocols that a browser offers.
func protocolToken(r *http.Request) (token string, ok bool) {
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(line, ",") {
			t, found := strings.CutPrefix(strings.TrimSpace(name), protocolPrefix)
			if found && ok {
				return "", false
			}
			if found {
				token, ok = t, true
			}
		}
	}
	return token, ok
}
