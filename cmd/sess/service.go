package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/durable"
)

// service is the file that has a user's session start the gateway of a home.
type service struct {
	path    string
	content []byte
	// enable and disable are what switches it on and off, for people.
	enable, disable []string
}

// serviceMark begins the line that tells a file of ours from others; the hash of
// all that follows the line stands behind it.
const serviceMark = `written by "sess gateway install", remove it with "sess gateway uninstall"; sha256 `

// newService makes the file for a system. home and exe are absolute paths;
// standard is true when home is the one that holds where none is named. A user's
// configuration lies in configDir where that is set.
func newService(goos, exe, home, userHome, configDir string, standard bool) (*service, error) {
	name := "sess-gateway"
	if !standard { // each home has its own
		sum := sha256.Sum256([]byte(home))
		name += "-" + hex.EncodeToString(sum[:4])
	}
	for _, path := range []string{exe, home} {
		if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, plugin.Errorf(plugin.Usage, "%q cannot stand in a service file: it has control characters", path).
				WithHint("use another folder")
		}
	}
	s := &service{}
	switch goos {
	case "linux":
		unit := name + ".service"
		s.path = filepath.Join(cmp.Or(configDir, filepath.Join(userHome, ".config")), "systemd", "user", unit)
		s.content = marked("# ", "\n", "[Unit]\n"+
			"Description=sess gateway for "+unitText(home)+"\n\n"+
			"[Service]\n"+
			"ExecStart="+unitWord(exe)+" "+unitWord("--home="+home)+" gateway run\n"+
			"ExecReload="+unitWord(exe)+" "+unitWord("--home="+home)+" gateway reload\n"+
			"Restart=on-failure\n"+
			"RestartSec=5\n"+
			"TimeoutStopSec=10\n\n"+
			"[Install]\n"+
			"WantedBy=default.target\n")
		s.enable = []string{"systemctl --user daemon-reload", "systemctl --user enable --now " + unit}
		s.disable = []string{"systemctl --user disable --now " + unit}
	case "darwin":
		s.path = filepath.Join(userHome, "Library", "LaunchAgents", name+".plist")
		text := func(s string) string { return "<string>" + html.EscapeString(s) + "</string>" }
		s.content = marked("<!-- ", " -->\n", `<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">`+"\n"+
			`<plist version="1.0">`+"\n<dict>\n"+
			"\t<key>Label</key>"+text(name)+"\n"+
			"\t<key>ProgramArguments</key>\n\t<array>\n\t\t"+
			text(exe)+"\n\t\t"+text("--home="+home)+"\n\t\t"+text("gateway")+"\n\t\t"+text("run")+"\n\t</array>\n"+
			"\t<key>RunAtLoad</key><true/>\n"+
			"\t<key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>\n"+
			"</dict>\n</plist>\n")
		s.enable = []string{"launchctl bootstrap gui/$(id -u) " + shellWord(s.path)}
		s.disable = []string{"launchctl bootout gui/$(id -u)/" + name}
	default:
		return nil, plugin.Errorf(plugin.Usage, "there is no service file for %s", goos).
			WithHint("have your system run at login: %s", prog+" gateway start")
	}
	return s, nil
}

// marked puts the mark in front of a file's text, as a comment.
func marked(open, end, text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return []byte(open + serviceMark + hex.EncodeToString(sum[:]) + end + text)
}

// ours reports whether a file has our mark, and whether it is as we wrote it.
func ours(content []byte) (mark, intact bool) {
	first, rest, _ := strings.Cut(string(content), "\n")
	_, sum, mark := strings.Cut(first, serviceMark)
	want := sha256.Sum256([]byte(rest))
	return mark, mark && strings.HasPrefix(sum, hex.EncodeToString(want[:]))
}

// unitText escapes what stands in a value of a unit file, and unitWord what is
// one word of a command there (systemd.service(5), "Command lines").
func unitText(s string) string { return strings.ReplaceAll(s, "%", "%%") }

func unitWord(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", "$$", "%", "%%").Replace(s) + `"`
}

// shellWord quotes a word for a shell.
func shellWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (a *app) service() (*service, error) {
	home, err := a.homeDir()
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	user := a.userHome()
	if user == "" {
		return nil, plugin.Errorf(plugin.Usage, "no home folder is known: HOME is not set").WithHint("set HOME")
	}
	config := a.getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) { // as its specification says of relative ones
		config = ""
	}
	return newService(runtime.GOOS, exe, home, user, config, home == filepath.Join(user, ".sess"))
}

// existing is what lies where the service file belongs; nil is nothing.
func (s *service) existing() ([]byte, error) {
	content, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return content, err
}

func (a *app) gatewayInstall(_ context.Context, _ *dispatch.Invocation) (plugin.Result, error) {
	s, err := a.service()
	if err != nil {
		return plugin.Result{}, err
	}
	old, err := s.existing()
	if err != nil {
		return plugin.Result{}, err
	}
	if _, intact := ours(old); old != nil && !intact {
		return plugin.Result{}, plugin.Errorf(plugin.Exists, "%s is there already, and it is not as this program wrote it", s.path).
			WithHint("remove or rename it, then install again").WithDetail("file", s.path)
	}
	dir, err := durable.OpenShared(filepath.Dir(s.path))
	if err != nil {
		return plugin.Result{}, err
	}
	defer dir.Close()
	if err := durable.Write(dir, filepath.Base(s.path), s.content); err != nil {
		return plugin.Result{}, err
	}
	return answer("wrote "+s.path+"\n\nswitch it on with:\n  "+strings.Join(s.enable, "\n  "),
		map[string]any{"file": s.path, "enable": s.enable})
}

func (a *app) gatewayUninstall(_ context.Context, _ *dispatch.Invocation) (plugin.Result, error) {
	s, err := a.service()
	if err != nil {
		return plugin.Result{}, err
	}
	old, err := s.existing()
	switch mark, intact := ours(old); {
	case err != nil:
		return plugin.Result{}, err
	case old == nil:
		return plugin.Result{}, plugin.Errorf(plugin.NotFound, "there is no service file %s", s.path).
			WithHint("%s writes it", a.typed("gateway", "install"))
	case !mark:
		return plugin.Result{}, plugin.Errorf(plugin.Denied, "%s was not written by this program", s.path).
			WithHint("remove it yourself if it is not needed").WithDetail("file", s.path)
	case !intact:
		return plugin.Result{}, plugin.Errorf(plugin.Denied, "%s was changed since this program wrote it", s.path).
			WithHint("remove it yourself if the changes are not needed").WithDetail("file", s.path)
	}
	dir, err := durable.OpenShared(filepath.Dir(s.path))
	if err != nil {
		return plugin.Result{}, err
	}
	defer dir.Close()
	if err := durable.Remove(dir, filepath.Base(s.path)); err != nil {
		return plugin.Result{}, err
	}
	return answer(fmt.Sprintf("removed %s\n\na gateway that it started goes on until:\n  %s", s.path, strings.Join(s.disable, "\n  ")),
		map[string]any{"file": s.path, "disable": s.disable})
}
