package sess

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
	"sess/store/transcript"
)

func searchVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:    "search",
			Summary: "Find text in snapshots and sessions",
			Help: "Looks through messages, tool calls, titles, notes, reasons and tags, in any case and in any spelling of accented letters. " +
				"Newest first. What several snapshots have in common is shown once, at the newest of them. The trash is left out.",
			Examples: []string{"search budget", `search "launch date" --all-projects`, "search --regex 'issue #[0-9]+' --limit=5"},
			Args:     []plugin.Arg{{Name: "text", Type: plugin.TypeString, Help: "what to look for", Required: true}},
			Flags: func(fs *dispatch.Flags) {
				fs.Bool("regex", false, "the text is a regular expression")
				fs.String("of-session", "", "only this session and its snapshots").Complete(completeSession)
				fs.Bool("all-projects", false, "those of all projects of the agent")
				fs.Paged()
			},
			Effect: plugin.EffectRead,
		},
		run: search,
	}
}

// maxHits bounds what one search finds.
const maxHits = 10_000

// hit is a place where something was found.
type hit struct {
	holder  *holder
	list    string // "meta" for what a snapshot or session says of itself
	index   int    // of the record in its list
	role    string // or the key of meta
	excerpt string
	from    int // the match in the excerpt, in characters
	to      int
	also    int // other holders that have the same record
}

// holder is a snapshot or a session that is looked through.
type holder struct {
	snapshot.Entry        // of a snapshot
	session        string // the id of a session
	project        string
	title          string
	updated        time.Time
}

// name is the snapshot's, or the session's id.
func (h *holder) name() string { return cmp.Or(h.session, string(h.Name)) }

func (h *holder) kind() string {
	if h.session != "" {
		return "session"
	}
	return "snapshot"
}

// compare orders holders: the newest first, and a session before its snapshots.
func (h *holder) compare(o *holder) int {
	return cmp.Or(o.updated.Compare(h.updated), -cmp.Compare(h.session, o.session), cmp.Compare(h.name(), o.name()), cmp.Compare(h.project, o.project))
}

// searching is one search.
type searching struct {
	*request
	match *matcher
	// chunks has what was found in each chunk: a chunk that many snapshots share
	// is looked through once.
	mu     sync.Mutex           // guards chunks
	chunks map[string][]matched // by keyOf
	hits   []*hit
	seen   map[[sha256.Size]byte]*hit
}

// matched is a record that matches: its place in its chunk, and the hit to be.
type matched struct {
	offset int
	sum    [sha256.Size]byte
	hit    hit
}

func search(ctx context.Context, r *request) (plugin.Result, error) {
	match, err := newMatcher(r.Arg("text"), r.Bool("regex"))
	if err != nil {
		return plugin.Result{}, err
	}
	s := &searching{request: r, match: match, chunks: map[string][]matched{}, seen: map[[sha256.Size]byte]*hit{}}
	holders, err := s.holders(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	for i, h := range holders {
		r.Progress(plugin.Progress{Stage: "searching", Done: int64(i), Total: int64(len(holders)), Unit: "snapshots"})
		if err := s.look(ctx, h); err != nil {
			if ctx.Err() != nil {
				return plugin.Result{}, context.Cause(ctx)
			}
			r.notices = append(r.notices, fmt.Sprintf("%s %s could not be looked through: %s", h.kind(), h.name(), explain(err).Text()))
		}
		if len(s.hits) > maxHits {
			s.hits = s.hits[:maxHits]
			r.notices = append(r.notices, fmt.Sprintf("there is more than %d times of it; look for something longer to see the rest", maxHits))
			break
		}
	}
	return s.answer(holders)
}

// holders lists what there is to look through, the newest first.
func (s *searching) holders(ctx context.Context) ([]*holder, error) {
	keys := []poolKey{s.key}
	var err error
	if s.Bool("all-projects") {
		if keys, err = s.pools.projects(s.key.Agent); err != nil {
			return nil, err
		}
	}
	var all []*holder
	for _, k := range keys {
		entries, err := s.entries(ctx, k)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			all = append(all, &holder{Entry: e, project: k.Project, title: e.Meta.Title, updated: e.Meta.UpdatedAt})
		}
	}
	sessions, err := s.liveSessions(ctx)
	if err != nil {
		return nil, err
	}
	for _, live := range sessions {
		if live.Project == s.key.Project || s.Bool("all-projects") {
			all = append(all, &holder{session: live.ID, project: live.Project, title: live.Title, updated: time.UnixMilli(live.Updated)})
		}
	}
	if session := s.String("of-session"); session != "" {
		all = slices.DeleteFunc(all, func(h *holder) bool { return cmp.Or(h.session, h.Meta.SessionID) != session })
	}
	slices.SortFunc(all, (*holder).compare)
	return all, nil
}

// look looks through one holder.
func (s *searching) look(ctx context.Context, h *holder) error {
	if h.session != "" {
		return s.lookAtSession(ctx, h)
	}
	switch h.State {
	case snapshot.StateNewer, snapshot.StateDamaged:
		return fmt.Errorf("%s", cause(h.Problem))
	}
	pool, err := s.pools.existing(ctx, poolKey{s.key.Agent, h.project})
	if err != nil || pool == nil {
		return err
	}
	snap, err := pool.Read(ctx, h.Name)
	if err != nil {
		return err
	}
	s.meta(h, &snap.Doc.Meta)
	return s.document(ctx, h, snap.Doc, pool.Plain, func(ids []transcript.ID) plugin.Chunks { return frames(pool, ids) })
}

func (s *searching) lookAtSession(ctx context.Context, h *holder) error {
	live, err := s.runtime.Session(ctx, plugin.SessionRef{Project: h.project, ID: h.session})
	if has(err, plugin.NotFound) {
		return nil // it went meanwhile
	}
	if err != nil {
		return err
	}
	s.meta(h, &live.Document.Meta)
	read := func(ids []transcript.ID) plugin.Chunks { return s.runtime.ReadChunks(ctx, ids) }
	return s.document(ctx, h, &live.Document, func(id transcript.ID) (plain []byte, err error) {
		for c, err := range read([]transcript.ID{id}) {
			if err != nil {
				return nil, err
			}
			return snapshot.PlainFrame(c.ID, c.Frame)
		}
		return nil, fmt.Errorf("chunk %s: %w", id, transcript.ErrDamaged)
	}, read)
}

// meta looks at what a holder says of itself.
func (s *searching) meta(h *holder, m *transcript.Meta) {
	for _, part := range []struct{ key, text string }{
		{"name", string(h.Name)}, {"title", m.Title}, {"note", m.Note}, {"reason", m.Reason}, {"tags", tagText(m.Tags)},
	} {
		if excerpt, from, to, ok := s.match.find(part.text); ok {
			s.add(h, hit{list: "meta", role: part.key, excerpt: excerpt, from: from, to: to}, sha256.Sum256([]byte("meta\x00"+part.key+"\x00"+part.text)))
		}
	}
}

// add notes a hit, unless a newer holder has the same record.
func (s *searching) add(h *holder, one hit, sum [sha256.Size]byte) {
	if first := s.seen[sum]; first != nil {
		if first.holder != h {
			first.also++
		}
		return
	}
	one.holder = h
	s.seen[sum] = &one
	s.hits = append(s.hits, &one)
}

// document looks through the lists of a document, the last records first. load
// gives a chunk, frames many at once.
func (s *searching) document(ctx context.Context, h *holder, doc *transcript.Document, load transcript.Loader, frames func([]transcript.ID) plugin.Chunks) error {
	for _, name := range searched(doc) {
		l := doc.Lists[name]
		if l == nil {
			continue
		}
		var refs []transcript.Ref
		for ref, err := range l.Refs(load) {
			if err != nil {
				return err
			}
			refs = append(refs, ref)
		}
		if err := s.scan(ctx, name, refs, load, frames); err != nil {
			return err
		}
		var all []matched
		at := 0
		for _, ref := range refs {
			for _, f := range s.chunks[keyOf(name, ref)] {
				f.hit.index = at + f.offset
				all = append(all, f)
			}
			at += ref.Records
		}
		for _, f := range s.records(name, l.Tail) {
			f.hit.index = at + f.offset
			all = append(all, f)
		}
		for _, f := range slices.Backward(all) {
			s.add(h, f.hit, f.sum)
		}
	}
	return nil
}

// keyOf names a reference among those that were looked through, as part of a list
// of that name: what its text is depends on it.
func keyOf(list string, ref transcript.Ref) string {
	var key strings.Builder
	key.WriteString(list + " " + string(ref.ID))
	for _, piece := range ref.IDs {
		key.WriteString(string(piece))
	}
	return key.String()
}

// scanBatch is how many chunks are asked for at once.
const scanBatch = 32

// scan looks through the chunks that no document before had.
func (s *searching) scan(ctx context.Context, list string, refs []transcript.Ref, load transcript.Loader, frames func([]transcript.ID) plugin.Chunks) error {
	var ids []transcript.ID
	fresh := map[string]bool{}
	for _, ref := range refs {
		key := keyOf(list, ref)
		if _, known := s.chunks[key]; known || fresh[key] {
			continue
		}
		if ref.ID != "" {
			fresh[key] = true
			ids = append(ids, ref.ID)
			continue
		}
		for rec, err := range (&transcript.List{Records: 1, Chunks: []transcript.Ref{ref}}).All(load, 0, 1) { // a giant record
			if err != nil {
				return err
			}
			s.chunks[key] = s.records(list, []transcript.Record{rec})
		}
	}
	for batch := range slices.Chunk(ids, scanBatch) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.scanChunks(list, frames(batch)); err != nil {
			return err
		}
	}
	return nil
}

// scanChunks looks through chunks as they come.
func (s *searching) scanChunks(list string, chunks plugin.Chunks) error {
	var workers sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var mu sync.Mutex // guards bad
	var bad error
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		bad = cmp.Or(bad, err)
	}
	for c, err := range chunks {
		if err != nil {
			fail(err)
			break
		}
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			all, err := s.chunk(list, c)
			if err != nil {
				fail(err)
				return
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.chunks[keyOf(list, transcript.Ref{ID: c.ID})] = all
		})
	}
	workers.Wait()
	return bad
}

// chunk looks through one chunk.
func (s *searching) chunk(list string, c plugin.Chunk) ([]matched, error) {
	plain, err := snapshot.PlainFrame(c.ID, c.Frame)
	if err != nil {
		return nil, err
	}
	if !s.match.mayHold(plain) {
		return nil, nil
	}
	records, err := transcript.DecodeRecords(plain)
	if err != nil {
		return nil, err
	}
	return s.records(list, records), nil
}

// records looks through the records of a list.
func (s *searching) records(list string, records []transcript.Record) []matched {
	var all []matched
	for i, rec := range records {
		if !s.match.mayHold(rec) {
			continue
		}
		text, role := textOf(list, rec)
		if excerpt, from, to, ok := s.match.find(text); ok {
			all = append(all, matched{i, sha256.Sum256(rec), hit{list: list, role: role, excerpt: excerpt, from: from, to: to}})
		}
	}
	return all
}

// place says the same as the order of the hits in words.
func (h *hit) place() []string {
	return []string{placeOf(h.holder.updated), h.holder.session, negative(h.holder.name()), negative(h.holder.project), h.list, fmt.Sprintf("%012d", h.index), h.role}
}

// negative turns the order of words around.
func negative(word string) string {
	turned := make([]byte, len(word)+1)
	for i := range len(word) {
		turned[i] = 0xff - word[i]
	}
	turned[len(word)] = 0xff // a word stands before those that begin with it
	return fmt.Sprintf("%x", turned)
}

func (s *searching) answer(looked []*holder) (plugin.Result, error) {
	slices.SortFunc(s.hits, func(a, b *hit) int { return slices.Compare(b.place(), a.place()) })
	shown, page, err := dispatch.Paginate(s.Invocation, s.hits, (*hit).place)
	if err != nil {
		return plugin.Result{}, err
	}
	data := make([]json.RawMessage, len(shown)) // [] and never null
	var lines []string
	for i, h := range shown {
		pairs := []pair{
			{"kind", h.holder.kind()},
			{"name", h.holder.name()},
			{"project", h.holder.project},
			{"title", h.holder.title},
			{"updatedAt", h.holder.updated.UTC().Format(transcript.TimeLayout)},
			{"list", h.list},
		}
		where := h.role
		if h.list != "meta" {
			pairs = append(pairs, pair{"index", h.index})
			where = strings.TrimSpace(fmt.Sprintf("[%d] %s", h.index, h.role))
			if h.list == transcript.ListActivities {
				where = fmt.Sprintf("tool call %d", h.index)
			}
		}
		pairs = append(pairs, pair{"role", h.role}, pair{"excerpt", h.excerpt}, pair{"match", []int{h.from, h.to}}, pair{"also", h.also})
		if data[i], err = object(pairs...); err != nil {
			return plugin.Result{}, err
		}
		lines = append(lines, s.hitLine(h, where), "    "+h.excerpt)
	}
	if text := dispatch.PageText(len(shown), page); text != "" {
		lines = append(lines, text)
	}
	if page.Total == 0 {
		sessions := 0
		for _, h := range looked {
			if h.session != "" {
				sessions++
			}
		}
		lines = append(lines, fmt.Sprintf("nothing found in %s and %s", count(len(looked)-sessions, "snapshot"), count(sessions, "session")))
	}
	body, err := json.Marshal(data)
	return plugin.Result{Text: strings.Join(lines, "\n"), Data: body, Page: page}, err
}

// hitLine says where a hit is.
func (s *searching) hitLine(h *hit, where string) string {
	name := h.holder.name()
	if h.holder.session != "" {
		name = "session " + name
	}
	if s.Bool("all-projects") {
		name = h.holder.project + "/" + name
	}
	line := fmt.Sprintf("%s  %s  %s", name, where, plugin.Ago(h.holder.updated, s.now()))
	if h.also > 0 {
		line += fmt.Sprintf("  (and in %d more)", h.also)
	}
	return line
}
