package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"sess/plugin"
	"sess/store/durable"
)

// This file is what is known of a gateway from its home alone, without asking
// it.

// GatewaySocketPath is where the socket of a home's gateway is, if there is one.
// A path that is too long for a socket is written down by the gateway.
func GatewaySocketPath(home string) string {
	path := filepath.Join(home, gatewaySocket)
	if len(path) <= socketPathLimit {
		return path
	}
	fsys, err := durable.OpenAsIs(home)
	if err != nil {
		return path
	}
	defer fsys.Close()
	if s := readRecord(fsys, durable.ReadHolder(fsys, gatewayLock)); s.Socket != "" {
		return s.Socket
	}
	return path
}

// GatewayHeld tells from the lock of a home whether a gateway has it: then the
// state is unreachable, as nobody was asked, and the rest is what it wrote down.
func GatewayHeld(ctx context.Context, home string) (GatewayStatus, error) {
	stopped := GatewayStatus{State: GatewayStopped, Home: home}
	fsys, err := durable.OpenAsIs(home)
	if errors.Is(err, fs.ErrNotExist) {
		return stopped, nil
	}
	if err != nil {
		return stopped, HomeError(home, err)
	}
	defer fsys.Close()
	if ok, err := durable.Exists(fsys, gatewayLock); err != nil || !ok {
		return stopped, err
	}
	unlock, err := fsys.Lock(ctx, gatewayLock, durable.Shared, false)
	if err == nil {
		return stopped, unlock()
	}
	if !errors.Is(err, durable.ErrLocked) {
		return stopped, plugin.AsError(err)
	}
	s := readRecord(fsys, durable.ReadHolder(fsys, gatewayLock))
	s.State, s.Home = GatewayUnreachable, home
	return s, nil
}

// AwaitGatewayEnd returns when no gateway has the home any longer.
func AwaitGatewayEnd(ctx context.Context, home string, wait time.Duration) error {
	fsys, err := durable.OpenAsIs(home)
	if err != nil {
		return HomeError(home, err)
	}
	defer fsys.Close()
	unlock, err := durable.LockBriefly(ctx, fsys, gatewayLock, durable.Shared, wait)
	if errors.Is(err, durable.ErrLocked) {
		s := readRecord(fsys, durable.ReadHolder(fsys, gatewayLock))
		return plugin.Errorf(plugin.Busy, "the gateway has not ended within %v: %s", wait, s.String()).
			WithHint("end its process")
	}
	if err != nil {
		return err
	}
	return unlock()
}

// readRecord is what the gateway of a home wrote down, as far as the holder of
// the lock wrote it; what is known of the holder otherwise.
func readRecord(home durable.FS, holder durable.Holder) GatewayStatus {
	var s GatewayStatus
	data, err := durable.ReadFile(home, gatewayRecord, 1<<20)
	if err != nil || json.Unmarshal(data, &s) != nil || s.PID != holder.PID {
		return GatewayStatus{PID: holder.PID, StartedAt: holder.Since}
	}
	return s
}

// String names a gateway in messages.
func (s *GatewayStatus) String() string {
	text := "another process"
	if s.PID != 0 {
		text = fmt.Sprintf("process %d", s.PID)
	}
	if s.Address != "" {
		text += ", " + s.Address
	}
	if !s.StartedAt.IsZero() {
		text += ", since " + s.StartedAt.Local().Format(time.DateTime)
	}
	return text
}

// TokenEnv is the environment variable that overrides the gateway's token.
const TokenEnv = "SESS_GATEWAY_TOKEN"

// ReadGatewayToken is the token that the gateway of a home asks for, and where it
// comes from: the environment, the configuration, or a file in the home. The
// error wraps fs.ErrNotExist where no gateway has run yet.
func ReadGatewayToken(home string, builtins [][]byte, environ []string) (token, from string, err error) {
	found, err := find(home, builtins)
	if err != nil {
		return "", "", err
	}
	c, err := LoadConfig(home, manifestsOf(found))
	if err != nil {
		return "", "", err
	}
	fsys, err := durable.OpenAsIs(home)
	if err != nil {
		return "", "", HomeError(home, err)
	}
	defer fsys.Close()
	return findToken(fsys, c.Gateway.Token, environ)
}

// RotateGatewayToken puts a new token into a home. A gateway that runs goes on
// with the old one until its end. It is refused where the token comes from
// elsewhere.
func RotateGatewayToken(home string, builtins [][]byte, environ []string) (token string, err error) {
	_, from, err := ReadGatewayToken(home, builtins, environ)
	if file := filepath.Join(home, gatewayToken); err == nil && from != file {
		return "", plugin.Errorf(plugin.Usage, "the token comes from %s", from).WithHint("change it there")
	} else if err != nil && from != file {
		return "", err
	}
	fsys, err := durable.OpenAsIs(home)
	if err != nil {
		return "", HomeError(home, err)
	}
	defer fsys.Close()
	return makeToken(fsys)
}

// findToken finds the token of a home. One that is empty or cannot be sent is
// refused: it never means that none is needed.
func findToken(home durable.FS, configured string, environ []string) (token, from string, err error) {
	from = filepath.Join(home.Dir(), gatewayToken)
	hint := "remove the file; the next start of the gateway makes a new one"
	switch value, set := lookupEnv(environ, TokenEnv); {
	case set:
		hint = "set it to a long random word, or unset it to use the one in " + from
		token, from = value, TokenEnv
	case configured != "":
		hint = "set it to a long random word, or remove it to use the one in " + from
		token, from = configured, "gateway.token in the configuration"
	default:
		data, err := durable.ReadFile(home, gatewayToken, 1<<16)
		if err != nil {
			return "", from, err
		}
		token = strings.TrimSpace(string(data))
	}
	switch {
	case token == "":
		return "", from, plugin.Errorf(plugin.Usage, "the token in %s is empty, and an empty one never means that none is needed", from).WithHint("%s", hint)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", from, plugin.Errorf(plugin.Usage, "the token in %s has blanks or characters that no HTTP header can carry", from).WithHint("%s", hint)
	}
	return token, from, nil
}

// makeToken writes a new token, durably, for this user alone.
func makeToken(home durable.FS) (string, error) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	token := hex.EncodeToString(random[:])
	return token, durable.Write(home, gatewayToken, []byte(token+"\n"))
}

func lookupEnv(environ []string, name string) (value string, set bool) {
	for _, kv := range environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value, set = v, true
		}
	}
	return value, set
}
