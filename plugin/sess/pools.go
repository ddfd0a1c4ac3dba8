package sess

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"sess/plugin"
	"sess/store/snapshot"
	"sess/store/transcript"
)

const (
	defaultAgent   = "main"
	defaultProject = "default"
)

// poolKey says whose pool it is. Agent is empty where all agents share one.
type poolKey struct{ Agent, Project string }

// layout is where pools lie.
type layout struct {
	agents  string // the folder with one folder for each agent
	storage string // below an agent's folder, or absolute
	shared  bool
}

func newLayout(storageDir, agents, home string) (layout, error) {
	dir := filepath.FromSlash(storageDir)
	if rest, ok := strings.CutPrefix(filepath.ToSlash(dir), "~"); ok && (rest == "" || rest[0] == '/') {
		if home == "" {
			return layout{}, badConfig("storageDir", "%q: the user's home folder is not known", storageDir)
		}
		dir = filepath.Join(home, filepath.FromSlash(rest))
	}
	return layout{agents: agents, storage: filepath.Clean(dir), shared: filepath.IsAbs(dir)}, nil
}

// key is the pool of an agent and a project; the names are checked, since both
// become folders.
func (l layout) key(agent, project string) (poolKey, error) {
	k := poolKey{agent, project}
	if k.Agent == "" {
		k.Agent = defaultAgent
	}
	if k.Project == "" {
		k.Project = defaultProject
	}
	if !isAgentName(k.Agent) {
		return k, plugin.Errorf(plugin.InvalidName, "agent %q: want at most 64 letters, digits, hyphens or underscores", clip(k.Agent, 80)).
			WithHint("leave --agent out for the agent %s", defaultAgent)
	}
	if problem := transcript.IDProblem(k.Project); problem != "" {
		return k, plugin.Errorf(plugin.InvalidName, "%q: a project id %s", clip(k.Project, 80), problem).
			WithHint("use letters, digits, hyphens and underscores, or leave --project out for the project %s", defaultProject)
	}
	if l.shared {
		k.Agent = ""
	}
	return k, nil
}

// isAgentName allows letters, digits, underscores and hyphens.
func isAgentName(s string) bool {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	return s != "" && len(s) <= 64 && strings.Trim(s, allowed) == ""
}

func (l layout) dir(k poolKey) string {
	switch {
	case l.shared && k.Project == defaultProject:
		return l.storage
	case l.shared:
		return filepath.Join(l.storage, "projects", k.Project)
	case k.Project == defaultProject:
		return filepath.Join(l.agents, k.Agent, l.storage)
	}
	return filepath.Join(l.agents, k.Agent, "projects", k.Project, l.storage)
}

// projects lists the pools of one agent that are on the disk, the default
// project first.
func (l layout) projects(agent string) ([]poolKey, error) {
	base := l.storage
	if !l.shared {
		base = filepath.Join(l.agents, agent)
	}
	names, err := folders(filepath.Join(base, "projects"))
	if err != nil {
		return nil, err
	}
	var keys []poolKey
	for _, name := range append([]string{defaultProject}, names...) {
		k := poolKey{agent, name}
		if name == defaultProject && len(keys) > 0 || transcript.IDProblem(name) != "" {
			continue
		}
		info, err := os.Lstat(l.dir(k))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case info.IsDir():
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// all lists the pools of all agents that are on the disk.
func (l layout) all() ([]poolKey, error) {
	if l.shared {
		return l.projects("")
	}
	agents, err := folders(l.agents)
	if err != nil {
		return nil, err
	}
	var keys []poolKey
	for _, a := range agents {
		if !isAgentName(a) {
			continue
		}
		more, err := l.projects(a)
		if err != nil {
			return nil, err
		}
		keys = append(keys, more...)
	}
	return keys, nil
}

// folders names the folders in dir, links not among them; none where dir does
// not exist.
func folders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// pools opens pools when they are first needed and keeps them.
type pools struct {
	layout
	options snapshot.Options
	// recover settles the ops that a dead process left open; it reports whether
	// it could.
	recover func(context.Context, *snapshot.Pool) bool

	mu   sync.Mutex // guards open, gone
	open map[poolKey]*openPool
	gone []*snapshot.Pool // whose folder was replaced; closed at the end
}

type openPool struct {
	pool    *snapshot.Pool
	info    fs.FileInfo   // of the folder, to notice that another took its place
	turn    chan struct{} // held by whoever settles the ops of a dead process
	settled chan struct{} // closed when that is done
}

func newPools(l layout, o snapshot.Options, recover func(context.Context, *snapshot.Pool) bool) *pools {
	return &pools{layout: l, options: o, recover: recover, open: map[poolKey]*openPool{}}
}

// get opens a pool, making its folder where it is missing.
func (p *pools) get(ctx context.Context, k poolKey) (*snapshot.Pool, error) {
	return p.pool(ctx, k, snapshot.Open)
}

// existing opens a pool without making anything; nil where there is none.
func (p *pools) existing(ctx context.Context, k poolKey) (*snapshot.Pool, error) {
	pool, err := p.pool(ctx, k, snapshot.OpenExisting)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return pool, err
}

func (p *pools) pool(ctx context.Context, k poolKey, open func(string, snapshot.Options) (*snapshot.Pool, error)) (*snapshot.Pool, error) {
	dir := p.dir(k)
	p.mu.Lock()
	found := p.open[k]
	p.mu.Unlock()
	if found != nil {
		if info, err := os.Stat(dir); err != nil || !os.SameFile(info, found.info) {
			p.drop(k, found)
			found = nil
		}
	}
	if found == nil {
		pool, err := open(dir, p.options)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(dir)
		if err != nil {
			return nil, errors.Join(err, pool.Close())
		}
		found = p.keep(k, &openPool{pool: pool, info: info, turn: make(chan struct{}, 1), settled: make(chan struct{})})
	}
	return found.pool, p.settle(ctx, found)
}

// keep files a pool that was just opened, unless another call was faster.
func (p *pools) keep(k poolKey, fresh *openPool) *openPool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := p.open[k]; first != nil {
		p.gone = append(p.gone, fresh.pool)
		return first
	}
	p.open[k] = fresh
	return fresh
}

// drop forgets a pool whose folder is another one by now. Calls that still use
// it end with its errors.
func (p *pools) drop(k poolKey, old *openPool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[k] == old {
		delete(p.open, k)
		p.gone = append(p.gone, old.pool)
	}
}

// settle recovers a pool once in this process's life. Where that fails the next
// call tries again; this one goes on, since open ops are in nobody's way.
func (p *pools) settle(ctx context.Context, o *openPool) error {
	select {
	case <-o.settled:
		return nil
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-o.turn }()
	select {
	case <-o.settled:
		return nil
	default:
	}
	if p.recover(ctx, o.pool) {
		close(o.settled)
	}
	return nil
}

func (p *pools) close() error {
	p.mu.Lock()
	all := slices.Clone(p.gone)
	for _, o := range p.open {
		all = append(all, o.pool)
	}
	p.gone, p.open = nil, map[poolKey]*openPool{}
	p.mu.Unlock()
	var errs []error
	for _, pool := range all {
		errs = append(errs, pool.Close())
	}
	return errors.Join(errs...)
}
