package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sess/store/session"
	"sess/store/snapshot"
	"strings"
	"syscall"
	"time"
)

// configured is the product in a home of its own, which has a configuration.
func (b *bench) configured(ctx context.Context, name, config string) (program, error) {
	sess, _, err := b.build(ctx)
	if err != nil {
		return sess, err
	}
	sess.home = filepath.Join(b.dir, name)
	if err := os.MkdirAll(sess.home, 0o700); err != nil {
		return sess, err
	}
	return sess, os.WriteFile(filepath.Join(sess.home, "config.json"), []byte(config), 0o600)
}

// turn measures a turn with autosave, asked for over HTTP, in a session of 50 MB
// and in one of 100 KB.
func (b *bench) turn(ctx context.Context) (err error) {
	sess, err := b.configured(ctx, "turn", `{"gateway": {"listen": "127.0.0.1:0", "token": "`+token+`"}, "plugins": {"entries": {"sess": {"config": {"autoSave": true}}}}}`)
	if err != nil {
		return err
	}
	for id, size := range map[string]int{"small": 100 << 10, "large": 50 << 20} {
		if err := converse(ctx, sess.home, id, size/turnBytes); err != nil {
			return err
		}
	}
	g, _, err := startGateway(ctx, sess)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	say := func(id string) func() error {
		return func() error {
			return post(ctx, g.address+"/sessions/"+id+"/messages", `{"content": "and then?"}`)
		}
	}
	t, err := inTurns(40, 1, say("small"), say("large")) // the first one reads all there is
	if err != nil {
		return err
	}
	b.row("turn with autosave, session of 50 MB", "the same, session of 100 KB", t[1]/t[0], 1.5)
	fmt.Fprintf(os.Stderr, "%-52s %.1f ms, %.1f ms\n", "", t[1]/1e6, t[0]/1e6)
	return nil
}

// post sends JSON and wants an answer of status 200.
func post(ctx context.Context, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("%s: %s: %s", url, res.Status, answer))
	}
	return errors.Join(err, res.Body.Close())
}

// sessions1000 makes 1,000 sessions of 100 KB in a home, as clients save them.
func sessions1000(ctx context.Context, home string) (files []string, err error) {
	dir := filepath.Join(home, "sessions", "default")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	text := newProse(17)
	for i := range 1000 {
		var file bytes.Buffer
		fmt.Fprintf(&file, `{"id":"s%03d","projectId":"default","title":"A talk","status":"idle","createdAt":1,"updatedAt":%d,"messages":[`, i, 1_790_000_000_000+i)
		for j := 0; file.Len() < 100<<10; j++ {
			if j > 0 {
				file.WriteByte(',')
			}
			file.Write(text.record(j, 2<<10))
		}
		file.WriteString("]}\n")
		name := filepath.Join(dir, fmt.Sprintf("s%03d.json", i))
		if err := errors.Join(ctx.Err(), os.WriteFile(name, file.Bytes(), 0o600)); err != nil {
			return nil, err
		}
		files = append(files, name)
	}
	return files, nil
}

// loadAll measures loading all sessions, as clients saved them and as they are
// after a turn, when part of each is in chunks.
func (b *bench) loadAll(ctx context.Context) (err error) {
	plain, turned := filepath.Join(b.dir, "plain"), filepath.Join(b.dir, "turned")
	files, err := sessions1000(ctx, plain)
	if err != nil {
		return err
	}
	if _, err := sessions1000(ctx, turned); err != nil {
		return err
	}
	var stores []*session.Store
	for _, home := range []string{plain, turned} {
		s, err := session.Open(filepath.Join(home, "sessions"), session.Options{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		stores = append(stores, s)
	}
	list, err := stores[1].List(ctx)
	if err != nil {
		return err
	}
	for _, info := range list {
		if err := rewrite(ctx, stores[1], info.Ref); err != nil {
			return err
		}
	}
	load := func(s *session.Store) func() error {
		return func() error {
			n := 0
			for _, err := range s.LoadAll(ctx) {
				if err != nil {
					return err
				}
				n++
			}
			if n != len(files) {
				return fmt.Errorf("%d sessions of %d", n, len(files))
			}
			return nil
		}
	}
	t, err := inTurns(5, 1,
		func() error {
			for _, file := range files {
				var v any
				data, err := os.ReadFile(file)
				if err := errors.Join(err, json.Unmarshal(data, &v)); err != nil {
					return err
				}
			}
			return nil
		}, load(stores[0]), load(stores[1]))
	if err != nil {
		return err
	}
	const against = "reading and parsing the files as JSON"
	b.row("loadAll of 1,000 sessions of 100 KB", against, t[1]/t[0], 2.5)
	b.row("loadAll of the same after a turn in each", against, t[2]/t[0], 2.5)
	return nil
}

// rewrite stores a session as a turn does.
func rewrite(ctx context.Context, s *session.Store, ref session.Ref) (err error) {
	lock, err := s.Lock(ctx, ref, "bench", true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	live, err := lock.Read(ctx)
	if err != nil {
		return err
	}
	_, err = lock.Write(ctx, live, live.Revision)
	return err
}

// crowd measures the start of a gateway with many sessions.
func (b *bench) crowd(ctx context.Context) error {
	const config = `{"gateway": {"listen": "127.0.0.1:0"}, "sessions": {"max": 1000}}`
	none, err := b.configured(ctx, "none", config)
	if err != nil {
		return err
	}
	many, err := b.configured(ctx, "many", config)
	if err != nil {
		return err
	}
	if _, err := sessions1000(ctx, many.home); err != nil {
		return err
	}
	syscall.Sync() // what was written is not to be in the way of what is measured
	var times [2]samples
	for round := range 40 {
		for n := range times {
			i := (round + n) % 2 // who is first has the other's end beside it
			g, took, err := startGateway(ctx, []program{none, many}[i])
			if err != nil {
				return err
			}
			times[i] = append(times[i], took)
			if err := g.stop(); err != nil {
				return err
			}
		}
	}
	b.row("gateway ready with 1,000 sessions", "the same with none", times[1].median()/times[0].median(), 1.5)
	return nil
}

// search measures a search over 1,000 snapshots of one conversation, made after
// each of its turns, against reading all the files that it is about.
func (b *bench) search(ctx context.Context) (err error) {
	sess, err := b.configured(ctx, "search", `{}`)
	if err != nil {
		return err
	}
	live, err := newTalk(filepath.Join(b.dir, "searched"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, live.fs.Close()) }()
	pool, err := snapshot.Open(filepath.Join(sess.home, "agents", "main", "sessions"), snapshot.Options{})
	if err != nil {
		return err
	}
	for i := range 1000 {
		err := errors.Join(live.speak(ctx, 1), live.save(ctx, pool, snapshot.SaveRequest{Name: snapshot.Name(fmt.Sprintf("n%d", i))}))
		if err != nil {
			return errors.Join(err, pool.Close())
		}
	}
	if err := pool.Close(); err != nil {
		return err
	}
	t, err := inTurns(5, 1,
		func() error { return sess.run(ctx, "list", "--limit=1") },
		func() error {
			for _, pattern := range []string{"*.sess.json", ".chunks/*"} {
				files, err := filepath.Glob(filepath.Join(pool.Dir(), pattern))
				for _, file := range files {
					_, read := os.ReadFile(file)
					err = errors.Join(err, read)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
		func() error { return sess.run(ctx, "search", "nowhere to be found") },
	)
	if err != nil {
		return err
	}
	b.row("search over 1,000 snapshots", "sess list, and reading their files", t[2]/(t[0]+t[1]), noBound)
	fmt.Fprintf(os.Stderr, "%-52s %v\n", "", time.Duration(t[2]).Round(time.Millisecond))
	return nil
}
