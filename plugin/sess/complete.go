package sess

import (
	"context"
	"strings"

	"sess/plugin"
)

// The kinds of words that Complete knows, and one that the host answers.
const (
	completeSnapshot = "snapshot"
	completeTrash    = "trash"
	completeSession  = "session"
)

// Complete proposes names. Auto-managed ones come only once a ~ was typed: they
// are many and seldom meant.
func (p *Plugin) Complete(ctx context.Context, req plugin.CompleteRequest) ([]plugin.Candidate, error) {
	s, err := p.configured()
	if err != nil {
		return nil, err
	}
	typed := ""
	if n := len(req.Call.Argv); n > 0 {
		typed = req.Call.Argv[n-1]
	}
	if strings.HasPrefix(typed, "--") {
		_, typed, _ = strings.Cut(typed, "=")
	}
	k, err := s.pools.key(req.Call.Agent, req.Call.Project)
	if err != nil {
		return nil, err
	}
	out, err := s.names(ctx, k, req.Kind, typed)
	if err != nil {
		return nil, explain(err)
	}
	return out, nil
}

func (s *service) names(ctx context.Context, k poolKey, kind, typed string) ([]plugin.Candidate, error) {
	pool, err := s.pools.existing(ctx, k)
	if err != nil || pool == nil {
		return nil, err
	}
	var out []plugin.Candidate
	switch kind {
	case completeSnapshot:
		entries, err := pool.List(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if strings.HasPrefix(string(e.Name), typed) && (!e.Name.Auto() || strings.Contains(typed, "~")) {
				help := count(e.Meta.Messages, "message") + ", " + plugin.Ago(e.Meta.UpdatedAt, s.now())
				if e.Problem != "" {
					help = oneLine(e.Problem, 60)
				}
				out = append(out, plugin.Candidate{Value: string(e.Name), Help: help})
			}
		}
	case completeTrash:
		entries, err := pool.ListTrash(ctx)
		if err != nil {
			return nil, err
		}
		seen := map[string]bool{}
		for _, e := range entries {
			if name := string(e.Name); strings.HasPrefix(name, typed) && !seen[name] {
				seen[name] = true
				out = append(out, plugin.Candidate{Value: name, Help: oneLine(e.Reason, 40) + ", " + plugin.Ago(e.DeletedAt, s.now())})
			}
		}
	}
	return out, nil
}
