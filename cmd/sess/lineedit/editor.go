package lineedit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrInterrupted is what [Editor.ReadLine] returns for Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// Options are what an Editor needs of a terminal.
type Options struct {
	// Keys is what is typed. It is read only while a line is asked for.
	Keys io.Reader
	// Screen is where the line is shown.
	Screen io.Writer
	// Raw prepares the terminal for a line: no echo, each key at once, Ctrl-C and
	// the like as keys. restore takes that back.
	Raw func() (restore func() error, err error)
	// Size is the terminal's, in columns and rows; 0 is unknown.
	Size func() (width, height int)
	// Resized has a value whenever the size may have changed. It may be nil.
	Resized <-chan struct{}
	// Waiting takes what was typed and not read yet, without waiting for more. It
	// may be nil.
	Waiting func() []byte
	// Suspend stops the program, as Ctrl-Z does, and returns when it goes on. nil
	// leaves Ctrl-Z without a meaning.
	Suspend func()
}

// Line says how one line is asked for. The zero value asks for it without a
// word.
type Line struct {
	Prompt string
	// History is what was written before, newest last. It may be nil.
	History []string
	// Complete proposes what may stand at the end of the text before the cursor.
	// It may be nil, and is called by the goroutine of ReadLine.
	Complete func(before string) Completion
	// Fresh leaves what was typed before this line was asked for to the next line
	// that is not: it was written without knowing the question.
	Fresh bool
}

// Completion is what may stand at the end of a text.
type Completion struct {
	From       int // where the word begins that the candidates replace, in bytes
	Candidates []Candidate
}

// Candidate is one proposal. Value is a whole word as it is written; one that
// goes on, such as a flag before its value, ends in "=".
type Candidate struct{ Value, Help string }

// Editor asks for lines at one terminal. One line is asked for at a time.
type Editor struct {
	o      Options
	typed  []byte // not parsed yet
	held   []byte // typed before a fresh line, and not meant for it
	asked  bool   // a read is under way
	reads  chan read
	killed string
}

type read struct {
	bytes []byte
	err   error
}

// New makes an editor. Nothing is read or shown before a line is asked for.
func New(o Options) *Editor { return &Editor{o: o, reads: make(chan read, 1)} }

// hold keeps what was typed for a later line.
func (e *Editor) hold() {
	select {
	case r := <-e.reads:
		e.asked, e.typed = false, append(e.typed, r.bytes...)
	default:
	}
	if !e.asked && e.o.Waiting != nil {
		e.typed = append(e.typed, e.o.Waiting()...)
	}
	e.held, e.typed = append(e.held, e.typed...), nil
}

// ReadLine asks for one line; its text may have several. It returns io.EOF for
// Ctrl-D where nothing is written, and where the keys end, ErrInterrupted for
// Ctrl-C, and the context's error when ctx ends. What is written then is lost, and
// the cursor is at the start of a line. A read of the keys that is under way goes
// on; the next line has what comes of it.
func (e *Editor) ReadLine(ctx context.Context, line Line) (text string, err error) {
	restore, err := e.o.Raw()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, restore()) }()
	if line.Fresh {
		e.hold()
	} else {
		e.typed, e.held = append(e.held, e.typed...), nil
	}
	s := &session{Editor: e, line: line, at: len(line.History), screen: screen{w: e.o.Screen}}
	s.measure()
	return s.read(ctx)
}

// session is one line while it is written.
type session struct {
	*Editor
	line   Line
	text   string
	cursor int // in bytes of text
	screen screen
	width  int
	height int // 0: unknown

	at    int    // in the history; its length is the line itself
	draft string // the line itself while another one is shown

	search *search // nil: none is under way
}

// search is a search in the history.
type search struct {
	query  string
	at     int // of what was found
	failed bool
	before string // what was written before the search
}

func (s *session) measure() {
	s.width, s.height = s.o.Size()
	if s.width <= 0 {
		s.width = 80
	}
}

// read takes keys until the line is done.
func (s *session) read(ctx context.Context) (string, error) {
	s.draw()
	for {
		k, err := s.next(ctx)
		if err != nil {
			s.end("")
			return "", err
		}
		if s.search != nil && s.searchKey(k) {
			continue
		}
		switch k.kind {
		case keyEnter:
			s.end("")
			return s.text, nil
		case keyInterrupt:
			s.end("^C")
			return "", ErrInterrupted
		case keyEOF:
			if s.text == "" {
				s.end("")
				return "", io.EOF
			}
			s.deleteNext()
		default:
			s.press(k)
		}
	}
}

// next is the next key. The line is drawn when nothing more was typed.
func (s *session) next(ctx context.Context) (key, error) {
	for {
		if k, n := parseKey(s.typed); n > 0 {
			s.typed = s.typed[n:]
			return k, nil
		}
		s.draw()
		if !s.asked {
			s.asked = true
			go func() {
				buffer := make([]byte, 4096)
				n, err := s.o.Keys.Read(buffer)
				s.reads <- read{buffer[:n], err}
			}()
		}
		select {
		case <-ctx.Done():
			return key{}, context.Cause(ctx)
		case <-s.o.Resized:
			old := s.width
			if s.measure(); s.width != old {
				s.screen.resized(s.width)
			}
		case r := <-s.reads:
			s.asked = false
			s.typed = append(s.typed, r.bytes...)
			if len(r.bytes) == 0 && r.err != nil {
				return key{}, r.err
			}
		}
	}
}

// press does what a key is for, but for those that end the line.
func (s *session) press(k key) {
	switch k.kind {
	case keyText, keyPaste:
		s.insert(k.text)
	case keyNewline:
		s.insert("\n")
	case keyTab:
		s.complete()
	case keyLeft:
		s.cursor -= lastSize(s.text[:s.cursor])
	case keyRight:
		s.cursor += firstSize(s.text[s.cursor:])
	case keyHome:
		s.cursor = s.lineStart()
	case keyEnd:
		s.cursor = s.lineEnd()
	case keyWordLeft:
		s.cursor = wordLeft(s.text, s.cursor)
	case keyWordRight:
		s.cursor = wordRight(s.text, s.cursor)
	case keyBackspace:
		s.remove(s.cursor-lastSize(s.text[:s.cursor]), s.cursor)
	case keyDelete:
		s.deleteNext()
	case keyKillWord:
		s.kill(wordLeft(s.text, s.cursor), s.cursor)
	case keyKillBlank:
		at := len(strings.TrimRightFunc(s.text[:s.cursor], unicode.IsSpace))
		s.kill(strings.LastIndexFunc(s.text[:at], unicode.IsSpace)+1, s.cursor)
	case keyKillNextWord:
		s.kill(s.cursor, wordRight(s.text, s.cursor))
	case keyKillStart:
		s.kill(s.lineStart(), s.cursor)
	case keyKillEnd:
		end := s.lineEnd()
		if end == s.cursor { // as in other editors: the line end itself
			end += firstSize(s.text[end:])
		}
		s.kill(s.cursor, end)
	case keyYank:
		s.insert(s.killed)
	case keySwap:
		s.swap()
	case keyUp:
		if start := s.lineStart(); start > 0 {
			s.moveTo(start-1, start)
			return
		}
		s.recall(s.at - 1)
	case keyDown:
		if end := s.lineEnd(); end < len(s.text) {
			s.moveTo(end+1, s.lineStart())
			return
		}
		s.recall(s.at + 1)
	case keyPrevious:
		s.recall(s.at - 1)
	case keyNext:
		s.recall(s.at + 1)
	case keySearch:
		s.search = &search{at: len(s.line.History), before: s.text}
	case keyClear:
		_, _ = io.WriteString(s.screen.w, "\x1b[H\x1b[2J")
		s.screen.forget()
	case keySuspend:
		if s.o.Suspend != nil {
			s.end("^Z")
			s.o.Suspend()
		}
	}
}

func (s *session) insert(text string) {
	s.text = s.text[:s.cursor] + text + s.text[s.cursor:]
	s.cursor += len(text)
}

func (s *session) remove(from, to int) {
	s.text, s.cursor = s.text[:from]+s.text[to:], from
}

func (s *session) deleteNext() { s.remove(s.cursor, s.cursor+firstSize(s.text[s.cursor:])) }

// kill removes a part that Ctrl-Y brings back.
func (s *session) kill(from, to int) {
	if from < to {
		s.killed = s.text[from:to]
		s.remove(from, to)
	}
}

// swap exchanges the characters on both sides of the cursor, at the end of the
// line the last two.
func (s *session) swap() {
	if s.cursor == s.lineEnd() {
		s.cursor -= lastSize(s.text[:s.cursor])
	}
	left, right := s.cursor-lastSize(s.text[:s.cursor]), s.cursor+firstSize(s.text[s.cursor:])
	if left < s.cursor && s.cursor < right {
		s.text = s.text[:left] + s.text[s.cursor:right] + s.text[left:s.cursor] + s.text[right:]
		s.cursor = right
	}
}

// lineStart and lineEnd are those of the line of the text that the cursor is in.
func (s *session) lineStart() int { return strings.LastIndexByte(s.text[:s.cursor], '\n') + 1 }

func (s *session) lineEnd() int {
	if n := strings.IndexByte(s.text[s.cursor:], '\n'); n >= 0 {
		return s.cursor + n
	}
	return len(s.text)
}

// moveTo puts the cursor into the line that at is in, as far from its start as
// it was from from.
func (s *session) moveTo(at, from int) {
	far := utf8.RuneCountInString(s.text[from:s.cursor])
	s.cursor = at
	s.cursor = s.lineStart()
	for end := s.lineEnd(); far > 0 && s.cursor < end; far-- {
		s.cursor += firstSize(s.text[s.cursor:])
	}
}

// recall shows another line of the history, or the line itself behind the last.
func (s *session) recall(at int) {
	if at < 0 || at > len(s.line.History) {
		return
	}
	if s.at == len(s.line.History) {
		s.draft = s.text
	}
	s.at = at
	if s.text = s.draft; at < len(s.line.History) {
		s.text = s.line.History[at]
	}
	s.cursor = len(s.text)
}

// searchKey takes a key while a search is under way. It is false for one that
// ends the search and is meant for what was found.
func (s *session) searchKey(k key) bool {
	find := s.search
	switch k.kind {
	case keyText, keyPaste:
		find.query += k.text
		s.find(min(find.at, len(s.line.History)-1))
	case keyBackspace:
		find.query = find.query[:len(find.query)-lastSize(find.query)]
		s.find(len(s.line.History) - 1)
	case keySearch:
		s.find(find.at - 1)
	case keyCancel, keyInterrupt:
		s.search, s.text, s.cursor = nil, find.before, len(find.before)
	case keyNone:
		s.search = nil
	default:
		s.search = nil
		return false
	}
	return true
}

// find looks for the newest line that has the query, from at on backwards.
func (s *session) find(at int) {
	for ; at >= 0 && s.search.query != ""; at-- {
		if i := strings.LastIndex(s.line.History[at], s.search.query); i >= 0 {
			s.search.at, s.search.failed = at, false
			s.at, s.text, s.cursor = at, s.line.History[at], i
			return
		}
	}
	s.search.failed = s.search.query != ""
}

// complete puts in what all candidates have in common, or shows them where that
// is nothing more than what is there.
func (s *session) complete() {
	if s.line.Complete == nil {
		return
	}
	s.draw() // what the candidates are sought for
	before := s.text[:s.cursor]
	c := s.line.Complete(before)
	if len(c.Candidates) == 0 || c.From > len(before) {
		return
	}
	common := c.Candidates[0].Value
	for _, other := range c.Candidates[1:] {
		for !strings.HasPrefix(other.Value, common) {
			common = common[:len(common)-lastSize(common)]
		}
	}
	word := before[c.From:]
	switch {
	case len(c.Candidates) == 1:
		if !strings.HasSuffix(common, "=") {
			common += " "
		}
		s.replace(c.From, common)
	case strings.HasPrefix(common, word) && common != word:
		s.replace(c.From, common)
	default:
		s.list(c.Candidates)
	}
}

// replace puts a word in the place of the one before the cursor.
func (s *session) replace(from int, word string) {
	if strings.HasSuffix(word, " ") && strings.HasPrefix(s.text[s.cursor:], " ") {
		word = word[:len(word)-1]
	}
	s.remove(from, s.cursor)
	s.insert(word)
}

// shownCandidates bounds how many are listed.
const shownCandidates = 20

// list shows candidates below the line, which is drawn anew behind them.
func (s *session) list(all []Candidate) {
	wide := 0
	shown := all[:min(len(all), shownCandidates)]
	for _, c := range shown {
		wide = max(wide, columns(c.Value))
	}
	var rows []string
	for _, c := range shown {
		row := c.Value
		if c.Help != "" {
			row += strings.Repeat(" ", wide-columns(row)+2) + c.Help
		}
		rows = append(rows, fit(row, s.width-1))
	}
	if more := len(all) - len(shown); more > 0 {
		rows = append(rows, fit(fmt.Sprintf("and %d more; type some more of the word", more), s.width-1))
	}
	s.end("")
	_, _ = io.WriteString(s.screen.w, strings.Join(rows, "\r\n")+"\r\n")
}

func (s *session) draw() {
	prompt, text, cursor := s.line.Prompt, s.text, s.cursor
	if s.search != nil {
		state := "search"
		if s.search.failed {
			state = "not found"
		}
		prompt = fmt.Sprintf("(%s) %s: ", state, s.search.query)
	}
	s.screen.draw(lay(prompt, text, cursor, s.width), s.height)
}

// end leaves the line on the screen as it is.
func (s *session) end(sign string) {
	s.search = nil
	s.draw()
	s.screen.leave(sign)
}

// columns is how wide a text is.
func columns(text string) int {
	wide := 0
	for text != "" {
		c := firstCell(text)
		wide += c.width
		text = text[c.size:]
	}
	return wide
}

// fit is as much of a text as fits into so many columns, without anything that
// acts on the terminal.
func fit(text string, width int) string {
	var b strings.Builder
	for text != "" {
		c := firstCell(text)
		if width -= c.width; width < 0 {
			break
		}
		b.WriteString(c.shown)
		text = text[c.size:]
	}
	return b.String()
}

// firstSize and lastSize are the sizes of a text's first and last character, in
// bytes; 0 where it has none.
func firstSize(text string) int {
	if text == "" {
		return 0
	}
	return firstCell(text).size
}

func lastSize(text string) int {
	// Characters are found from their start only; a line end is always one.
	from := strings.LastIndexByte(text, '\n')
	if from == len(text)-1 {
		return len(text) - max(from, 0)
	}
	size := 0
	for text = text[from+1:]; text != ""; text = text[size:] {
		size = firstCell(text).size
	}
	return size
}

// wordLeft and wordRight are where the word before and behind a place begins and
// ends.
func wordLeft(text string, at int) int {
	at = len(strings.TrimRightFunc(text[:at], notWord))
	return len(strings.TrimRightFunc(text[:at], isWord))
}

func wordRight(text string, at int) int {
	rest := strings.TrimLeftFunc(text[at:], notWord)
	return len(text) - len(strings.TrimLeftFunc(rest, isWord))
}

func isWord(r rune) bool  { return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) }
func notWord(r rune) bool { return !isWord(r) }
