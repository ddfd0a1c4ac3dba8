package host

import (
	"cmp"
	"context"

	"sess/host/chat"
	"sess/plugin"
	"sess/store/session"
)

// DefaultProject and DefaultAgent are used where a call names none.
const (
	DefaultProject = "default"
	DefaultAgent   = "main"
)

func projectOr(project string) string { return cmp.Or(project, DefaultProject) }

// Resolve finds the session that a call is about, without making one: the named
// one, else the one last active (in the named project, the one last worked on).
// An id that is named without its project is looked for in all of them. The
// returned ref has no ID when there is no session yet. A named session need not
// exist: restoring one that was deleted makes it again.
func (h *Host) Resolve(ctx context.Context, project, id string) (session.Ref, error) {
	if id != "" {
		if _, err := session.ParseRef(projectOr(project), id); err != nil {
			return session.Ref{}, chat.StoreError(err)
		}
	}
	if project != "" {
		if _, err := session.ParseRef(project, cmp.Or(id, "x")); err != nil {
			return session.Ref{}, chat.StoreError(err)
		}
		if id != "" {
			return session.Ref{Project: project, ID: id}, nil
		}
	}
	manifest, err := h.sessions.Manifest(ctx)
	if err != nil {
		return session.Ref{}, chat.StoreError(err)
	}
	last := session.Ref{Project: manifest.LastProjectID, ID: manifest.LastSessionID}
	switch {
	case id != "":
		return h.findSession(ctx, id, last)
	case project == "" || project == last.Project:
		if last.ID != "" && last.Project != "" {
			if ok, err := h.sessions.Exists(last); err != nil || ok {
				return last, chat.StoreError(err)
			}
		}
		if project == "" {
			return session.Ref{Project: DefaultProject}, nil
		}
	}
	infos, err := h.sessions.List(ctx)
	if err != nil {
		return session.Ref{}, chat.StoreError(err)
	}
	for _, info := range infos {
		if info.Ref.Project == project && info.Problem == "" {
			return info.Ref, nil
		}
	}
	return session.Ref{Project: project}, nil
}

// findSession looks for an id in all projects.
func (h *Host) findSession(ctx context.Context, id string, last session.Ref) (session.Ref, error) {
	if last.ID == id && last.Project != "" {
		return last, nil
	}
	projects, err := h.projectsOf(ctx, id)
	if err != nil {
		return session.Ref{}, err
	}
	switch len(projects) {
	case 0:
		return session.Ref{Project: DefaultProject, ID: id}, nil
	case 1:
		return session.Ref{Project: projects[0], ID: id}, nil
	}
	e := plugin.Errorf(plugin.Usage, "session %s exists in %d projects: %v", id, len(projects), projects).
		WithHint("name one with --project=%s", projects[0])
	return session.Ref{}, e
}

// projectsOf lists the projects that have a session of that id, sorted.
func (h *Host) projectsOf(ctx context.Context, id string) ([]string, error) {
	refs, err := h.sessions.Find(ctx, id)
	if err != nil {
		return nil, chat.StoreError(err)
	}
	var projects []string
	for _, ref := range refs {
		projects = append(projects, ref.Project)
	}
	return projects, nil
}

// ensure resolves a session and makes it, active, where there is none yet and
// none was named.
func (h *Host) ensure(ctx context.Context, ref plugin.SessionRef) (session.Ref, error) {
	at, err := h.Resolve(ctx, ref.Project, ref.ID)
	if err != nil || at.ID != "" {
		return at, err
	}
	return h.makeSession(ctx, at)
}

// makeSession makes a session, and makes it the active one. Without an id it is
// given one.
func (h *Host) makeSession(ctx context.Context, ref session.Ref) (session.Ref, error) {
	at, err := h.sessions.NewSession(ctx, ref, "", h.opts.Cwd, "")
	if err != nil {
		return session.Ref{}, chat.StoreError(err)
	}
	h.log.Info("session made", "session_id", at.ID, "project", at.Project)
	return at, nil
}
