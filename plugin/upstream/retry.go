package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	firstPause   = 500 * time.Millisecond
	longestPause = 8 * time.Second
	// patience is the longest pause that a provider may ask for; where it asks for
	// more, people are told instead of kept waiting.
	patience = time.Minute
)

// pause says whether a failed attempt is worth another one, and after what time.
func (c *Client) pause(err error, attempt int) (time.Duration, bool) {
	if attempt >= c.opts.MaxRetries || !passing(err) {
		return 0, false
	}
	if s, ok := errors.AsType[*StatusError](err); ok && s.RetryAfter > 0 {
		return s.RetryAfter, s.RetryAfter <= patience
	}
	pause := min(firstPause<<min(attempt, 10), longestPause)
	return pause - rand.N(pause/4), true // so that many do not come back at once
}

// passing reports whether an error may be gone in a moment.
func passing(err error) bool {
	if s, ok := errors.AsType[*StatusError](err); ok {
		return s.passing()
	}
	if errors.Is(err, errWhole) || errors.Is(err, errTooLarge) {
		return false
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return !dns.IsNotFound
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return false
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, errIdle) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// passing reports whether the provider may answer the same request otherwise in
// a moment. What an account has used up stays so.
func (s *StatusError) passing() bool {
	switch s.Status {
	case http.StatusTooManyRequests:
		return !s.exhausted()
	case http.StatusRequestTimeout, http.StatusConflict:
		return true
	}
	return s.Status >= 500 && s.Status != http.StatusNotImplemented
}

// exhausted reports whether the account, and not the moment, is the reason.
func (s *StatusError) exhausted() bool {
	return s.Status == http.StatusPaymentRequired || s.Code == "insufficient_quota" || s.Type == "insufficient_quota" || s.Type == "billing_error"
}

// retryAfter is the pause that an answer asks for; 0 if it asks for none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return time.Duration(min(ms, 1e12) * float64(time.Millisecond))
	}
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 {
		return time.Duration(min(seconds, 1e9) * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		// The date has whole seconds, by the clock of the provider where it says so.
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date
		}
		return max(0, at.Sub(now))
	}
	return 0
}

// inWords is a pause as people read it.
func inWords(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
