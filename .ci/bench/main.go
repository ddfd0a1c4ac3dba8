// Command bench measures what the product costs against bounds of the same
// machine in the same minute, and prints the table of the README. Bound and
// product take turns, so that both meet the same disk; what counts is the ratio.
//
//	bench [part…]
//
// The parts are sizes, first, list, reclaim, starts, border, gateway, daemon,
// turn, loadall, crowd, search and memory; without one, all are measured.
//
//	BENCH_MB      sizes of the conversations in MB ("1 50"; 500 takes minutes more)
//	BENCH_TURNS   turns saved at each size (60)
//	BENCH_DIR     where to work (a folder of its own in the system's one)
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/durable/durabletest"
	"sess/store/snapshot"
	"sess/store/transcript"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite"
)

const turnBytes = 8 << 10

func main() {
	if len(os.Args) > 3 && os.Args[1] == "plugin" && os.Args[2] == "serve" { // as hosts say it
		if err := serve(os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	dir   string
	turns int
	rows  [][]string
}

func run(ctx context.Context, only []string) (err error) {
	b := &bench{}
	parts := []struct {
		name    string
		measure func(context.Context) error
	}{
		{"sizes", b.sizes},
		{"first", b.firstSave},
		{"list", b.list},
		{"reclaim", b.reclaim},
		{"starts", b.starts},
		{"border", b.border},
		{"gateway", b.gateway},
		{"daemon", b.daemon},
		{"turn", b.turn},
		{"loadall", b.loadAll},
		{"crowd", b.crowd},
		{"search", b.search},
		{"memory", b.memory},
	}
	for _, name := range only {
		known := false
		for _, part := range parts {
			known = known || part.name == name
		}
		if !known {
			return fmt.Errorf("there is no part %q", name)
		}
	}
	if b.turns, err = strconv.Atoi(cmp.Or(os.Getenv("BENCH_TURNS"), "60")); err != nil {
		return fmt.Errorf("BENCH_TURNS: %w", err)
	}
	if b.dir, err = os.MkdirTemp(os.Getenv("BENCH_DIR"), "sess-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()

	for _, part := range parts {
		if len(only) > 0 && !slices.Contains(only, part.name) {
			continue
		}
		if err := errors.Join(ctx.Err(), part.measure(ctx)); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	b.print()
	return nil
}

// sizes measures what is done to conversations of different sizes.
func (b *bench) sizes(ctx context.Context) error {
	for field := range strings.FieldsSeq(cmp.Or(os.Getenv("BENCH_MB"), "1 50")) {
		mb, err := strconv.Atoi(field)
		if err != nil || mb < 1 {
			return fmt.Errorf("BENCH_MB: %q is no number of megabytes", field)
		}
		if err := b.atSize(ctx, mb); err != nil {
			return fmt.Errorf("at %d MB: %w", mb, err)
		}
	}
	return nil
}

// row notes a result: at most bound times what it is held against.
func (b *bench) row(what, against string, ratio, bound float64) {
	verdict := ""
	if ratio > bound {
		verdict = " **over**"
	}
	limit := "-"
	if bound < noBound {
		limit = fmt.Sprintf("%.4g×", bound)
	}
	b.rows = append(b.rows, []string{what, against, fmt.Sprintf("%.2f×%s", ratio, verdict), limit})
	fmt.Fprintf(os.Stderr, "%-52s %-44s %6.2fx (at most %s)%s\n", what, against, ratio, limit, verdict)
}

// noBound is the bound of what is told and not asked for.
const noBound = 1e9

func (b *bench) print() {
	fmt.Println("| what | against | ratio | at most |")
	fmt.Println("| --- | --- | --- | --- |")
	for _, r := range b.rows {
		fmt.Println("| " + strings.Join(r, " | ") + " |")
	}
}

// samples are the times of one operation.
type samples []time.Duration

func (s *samples) time(do func() error) error {
	start := time.Now()
	err := do()
	*s = append(*s, time.Since(start))
	return err
}

func (s samples) median() float64 {
	sorted := slices.Clone(s)
	slices.Sort(sorted)
	return float64(sorted[len(sorted)/2])
}

// prose is text that compresses as people's text does, about three to one.
type prose struct {
	rnd   *rand.Rand
	words []string
}

func newProse(seed uint64) *prose {
	p := &prose{rnd: rand.New(rand.NewPCG(seed, 1))}
	for range 6000 {
		word := make([]byte, 2+p.rnd.IntN(8))
		for i := range word {
			word[i] = byte('a' + p.rnd.IntN(26))
		}
		p.words = append(p.words, string(word))
	}
	return p
}

// record is a message of about size bytes.
func (p *prose) record(id, size int) transcript.Record {
	line := fmt.Appendf(nil, `{"id":"m%d","role":"agent","status":"complete","content":"`, id)
	for len(line) < size-2 {
		r := p.rnd.Float64()
		line = append(line, p.words[int(r*r*r*float64(len(p.words)))]...)
		line = append(line, ' ')
	}
	return append(line, `"}`...)
}

// talk is a conversation whose chunks lie in a store, as those of a live session
// do.
type talk struct {
	doc    transcript.Document
	chunks *chunk.Store
	prose  *prose
	fs     durable.FS
}

func newTalk(dir string) (*talk, error) {
	fsys, err := durable.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	c := &talk{chunks: chunk.Open(fsys, chunk.Options{}), prose: newProse(7), fs: fsys}
	c.doc.Meta = transcript.Meta{SessionID: "s1", Title: "A talk", Trigger: transcript.TriggerManual}
	return c, nil
}

// speak adds turns.
func (c *talk) speak(ctx context.Context, turns int) error {
	const batch = 1 << 9 // turns at a time, so that 500 MB need no 500 MB
	list := c.doc.List(transcript.ListMessages)
	for turns > 0 {
		n := min(turns, batch)
		var add []transcript.Record
		for i := range n {
			r := c.prose.record(list.Records+i, turnBytes)
			c.doc.Meta.Messages++
			c.doc.Meta.Bytes += int64(len(r)) + 1
			add = append(add, r)
		}
		seal := c.chunks.NewBatch()
		if err := list.Append(add, seal.Seal); err != nil {
			seal.Discard()
			return err
		}
		if err := seal.Commit(ctx); err != nil {
			return err
		}
		turns -= n
	}
	return nil
}

// save does what the plugin does: it asks what is missing, copies it, and saves.
func (c *talk) save(ctx context.Context, p *snapshot.Pool, r snapshot.SaveRequest) (err error) {
	w, err := p.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	w.Follow(r.Name, c.doc.Meta.SessionID)
	for ask := c.doc.InlineIDs(); len(ask) > 0; {
		missing, err := w.Missing(ask)
		if err != nil {
			return err
		}
		ask = nil
		for _, id := range missing {
			frame, err := c.chunks.Frame(id)
			if err != nil {
				return err
			}
			if err := w.Add(id, frame); err != nil {
				return err
			}
			ask = append(ask, w.Children(id)...)
		}
	}
	r.Doc = &c.doc
	_, err = w.Save(ctx, r)
	return err
}

// peer is a table with a row for each message, written synchronously.
type peer struct{ db *sql.DB }

func openPeer(file string) (*peer, error) {
	db, err := sql.Open("sqlite", file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`CREATE TABLE message(session TEXT, n INTEGER, body BLOB, PRIMARY KEY(session, n))`)
	return &peer{db}, err
}

func (p *peer) add(n int, body []byte) error {
	_, err := p.db.Exec(`INSERT INTO message VALUES('s1', ?, ?)`, n, body)
	return err
}

// fill adds rows in one transaction.
func (p *peer) fill(text *prose, rows int) error {
	tx, err := p.db.Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for n := range rows {
		if _, err := tx.Exec(`INSERT INTO message VALUES('s1', ?, ?)`, n, []byte(text.record(n, turnBytes))); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// atSize measures what is done to one conversation of mb megabytes.
func (b *bench) atSize(ctx context.Context, mb int) (err error) {
	dir := filepath.Join(b.dir, strconv.Itoa(mb))
	live, err := newTalk(filepath.Join(dir, "live"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, live.fs.Close()) }()
	if err := live.speak(ctx, mb<<20/turnBytes); err != nil {
		return err
	}
	pool, err := snapshot.Open(filepath.Join(dir, "pool"), snapshot.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	var disk durabletest.Counter // counting takes time, too
	counted, err := snapshot.Open(filepath.Join(dir, "pool"), snapshot.Options{FS: disk.Open})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, counted.Close()) }()
	db, err := openPeer(filepath.Join(dir, "peer.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.db.Close()) }()
	if err := db.fill(live.prose, mb<<20/turnBytes); err != nil {
		return err
	}
	// In the same folder, so that making a file costs the same.
	plain, err := durable.OpenDir(pool.Dir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.Close()) }()

	kinds := []string{"autosave", "new name", "overwrite"}
	for _, name := range []snapshot.Name{"autosave", "overwrite"} { // the slots, and all folders
		for range 2 {
			if err := live.save(ctx, pool, snapshot.SaveRequest{Name: name, Overwrite: true}); err != nil {
				return err
			}
		}
	}
	saves, same := map[string]*samples{}, map[string]*samples{}
	ops, written, syncs := map[string]int{}, map[string]int64{}, map[string]int{}
	for _, kind := range kinds {
		saves[kind], same[kind] = &samples{}, &samples{}
	}
	var small, rows samples
	buf := make([]byte, 1<<20)
	request := func(kind string, i int) snapshot.SaveRequest {
		switch kind {
		case "autosave":
			return snapshot.SaveRequest{Name: "autosave", Rolling: true}
		case "overwrite":
			return snapshot.SaveRequest{Name: "overwrite", Overwrite: true}
		}
		return snapshot.SaveRequest{Name: snapshot.Name(fmt.Sprintf("n%d", i))}
	}
	for i := range b.turns {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, kind := range kinds {
			if err := live.speak(ctx, 1); err != nil {
				return err
			}
			r := request(kind, i)
			if err := saves[kind].time(func() error { return live.save(ctx, pool, r) }); err != nil {
				return err
			}
			info, err := os.Stat(filepath.Join(pool.Dir(), string(r.Name)+".sess.json"))
			if err != nil {
				return err
			}
			if err := same[kind].time(func() error { return durable.Write(plain, ".same", buf[:min(info.Size(), int64(len(buf)))]) }); err != nil {
				return err
			}
		}
		if err := small.time(func() error { return durable.Write(plain, ".small", buf[:turnBytes]) }); err != nil {
			return err
		}
		body := live.prose.record(i, turnBytes)
		if err := rows.time(func() error { return db.add(1<<30+i, body) }); err != nil {
			return err
		}
	}
	for i := range b.turns {
		for _, kind := range kinds {
			if err := live.speak(ctx, 1); err != nil {
				return err
			}
			disk.Take()
			if err := live.save(ctx, counted, request(kind, b.turns+i)); err != nil {
				return err
			}
			n := disk.Take()
			ops[kind], written[kind], syncs[kind] = ops[kind]+n.Ops(), written[kind]+n.Written, syncs[kind]+n.Synced
		}
	}
	for _, kind := range kinds {
		what := fmt.Sprintf("save, %s, %d MB", kind, mb)
		took := saves[kind].median()
		b.row(what, "durable write of 8 KB", took/small.median(), 2)
		b.row(what, "durable write of the same bytes", took/same[kind].median(), 1.5)
		if kind == "autosave" {
			b.row(what, "SQLite, a synchronous row a message", took/rows.median(), noBound)
		}
		fmt.Fprintf(os.Stderr, "%-52s %.1f operations, %.1f syncs, %.0f KB written; %.2f ms, a write of 8 KB %.2f ms\n", what,
			float64(ops[kind])/float64(b.turns), float64(syncs[kind])/float64(b.turns), float64(written[kind])/float64(b.turns)/1024,
			took/1e6, small.median()/1e6)
	}
	if err := b.load(ctx, live, pool, plain, mb); err != nil {
		return err
	}
	return b.names(ctx, pool, plain, mb)
}

// load measures what a load asks of the pool: the record, the document, the
// backup of the state before, and the record closed; and apart from them the check
// of all chunks, which alone grows with the conversation.
func (b *bench) load(ctx context.Context, live *talk, pool *snapshot.Pool, plain durable.FS, mb int) error {
	var small, checks, rest, bare samples
	buf := make([]byte, turnBytes)
	info := snapshot.OpInfo{Kind: snapshot.OpLoad, Session: live.doc.Meta.SessionID, Name: "autosave"}
	for range b.turns {
		if err := live.speak(ctx, 1); err != nil {
			return err
		}
		var s *snapshot.Snapshot
		var frames int64
		err := errors.Join(
			small.time(func() error { return durable.Write(plain, ".small", buf) }),
			rest.time(func() (err error) {
				if s, err = pool.Read(ctx, "autosave"); err != nil {
					return err
				}
				op, err := pool.OpenOp(ctx, info)
				if err != nil {
					return err
				}
				if err := live.save(ctx, pool, snapshot.SaveRequest{AutoPrefix: "pre-load~", BackupFor: op}); err != nil {
					return errors.Join(err, op.Withdraw(ctx))
				}
				return op.Close(ctx)
			}),
			checks.time(func() error { return pool.Check(ctx, s, nil) }),
			bare.time(func() error {
				var files []string
				for _, pattern := range []string{"*.zst", "packs/*.pack"} {
					found, err := filepath.Glob(filepath.Join(pool.Dir(), ".chunks", pattern))
					if err != nil {
						return err
					}
					files = append(files, found...)
				}
				for _, file := range files {
					data, err := os.ReadFile(file)
					if err != nil {
						return err
					}
					frames += int64(len(data))
				}
				return nil
			}))
		if err != nil {
			return err
		}
		if frames == 0 {
			return fmt.Errorf("the snapshot of %d MB has no chunks", mb)
		}
	}
	b.row(fmt.Sprintf("load but for the check, %d MB", mb), "durable write of 8 KB", rest.median()/small.median(), noBound)
	b.row(fmt.Sprintf("check of all chunks, %d MB", mb), "reading their files", checks.median()/bare.median(), noBound)
	return nil
}

// names measures copy, rename and delete.
func (b *bench) names(ctx context.Context, pool *snapshot.Pool, plain durable.FS, mb int) error {
	var small, copies, renames, deletes samples
	buf := make([]byte, turnBytes)
	for i := range b.turns {
		from, to := snapshot.Name(fmt.Sprintf("c%d", i)), snapshot.Name(fmt.Sprintf("d%d", i))
		err := errors.Join(
			small.time(func() error { return durable.Write(plain, ".small", buf) }),
			copies.time(func() error {
				_, err := pool.Copy(ctx, "autosave", from, snapshot.CopyOptions{})
				return err
			}),
			renames.time(func() error {
				_, _, err := pool.Rename(ctx, from, to, snapshot.RenameOptions{})
				return err
			}),
			deletes.time(func() error {
				_, _, err := pool.Delete(ctx, []snapshot.Name{to}, snapshot.OpInfo{})
				return err
			}))
		if err != nil {
			return err
		}
	}
	for _, r := range []struct {
		what string
		s    samples
	}{{"copy", copies}, {"rename", renames}, {"delete", deletes}} {
		b.row(fmt.Sprintf("%s, %d MB", r.what, mb), "durable write of 8 KB", r.s.median()/small.median(), noBound)
	}
	return nil
}
