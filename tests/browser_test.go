//go:build browser

package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a real browser with a profile of its own, driven over the DevTools
// protocol: chromium, which .ci/run installs where it is missing. That is why these
// tests have a build tag of their own, browser.
type browser struct {
	t   testing.TB
	ctx context.Context
}

func newBrowser(t testing.TB) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.Flag("lang", "en"), chromedp.Flag("disable-dev-shm-usage", true))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	for try := 1; ; try++ {
		ctx, endProcess := chromedp.NewExecAllocator(t.Context(), options...)
		ctx, end := chromedp.NewContext(ctx)
		err := chromedp.Do(ctx)
		if err == nil {
			t.Cleanup(endProcess)
			t.Cleanup(end)
			return &browser{t, ctx}
		}
		end()
		endProcess()
		// Now and then one crashes before it has seen any page.
		if try == 3 {
			t.Fatalf("chromium does not start: %v", err)
		}
		t.Logf("chromium does not start, and is started once more: %v", err)
	}
}

// tab is a page in a tab of its own.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex // guards problems
	problems []string   // scripts that failed, and what the page's policy keeps from it
}

// The sizes of the screens at which the page is used.
type screen struct{ width, height int64 }

var (
	phone   = screen{360, 740}
	desktop = screen{1280, 800}
)

// open opens an address on a screen of that size.
func (b *browser) open(at screen, address string) *tab {
	b.t.Helper()
	ctx, end := chromedp.NewContext(b.ctx)
	b.t.Cleanup(end)
	p := &tab{t: b.t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil { // the tab lives as long as the context of the first call
		b.t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, func(event any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			p.problems = append(p.problems, fmt.Sprintf("%s %v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
				p.problems = append(p.problems, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
			}
		}
	}); err != nil {
		b.t.Fatal(err)
	}
	p.do(chromedp.EmulateViewport(at.width, at.height), chromedp.Navigate(address))
	return p
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, end := context.WithTimeout(p.ctx, 30*time.Second)
	defer end()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("%v: %v", err, context.Cause(p.ctx))
	}
}

// evaluate evaluates an expression of JavaScript; a promise is waited for.
func evaluate[T any](p *tab, expression string, args ...any) T {
	p.t.Helper()
	ctx, end := context.WithTimeout(p.ctx, 40*time.Second)
	defer end()
	for i, arg := range args {
		text, err := json.Marshal(arg)
		if err != nil {
			p.t.Fatal(err)
		}
		args[i] = string(text)
	}
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](fmt.Sprintf(expression, args...), chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v\nThe page shows:\n%s", fmt.Sprintf(expression, args...), err, p.text())
	}
	return out
}

// text is what the page shows.
func (p *tab) text() string {
	ctx, end := context.WithTimeout(p.ctx, 10*time.Second)
	defer end()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// until waits until an expression is true.
func (p *tab) until(expression string, args ...any) {
	p.t.Helper()
	ok := evaluate[bool](p, `new Promise((resolve) => {
		const end = Date.now() + 30_000;
		const look = () => (() => `+expression+`)() ? resolve(true) : Date.now() > end ? resolve(false) : setTimeout(look, 20);
		look();
	})`, args...)
	if !ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.t.Fatalf("it never came to be that %s\nThe page shows:\n%s\nThe browser says: %s", fmt.Sprintf(expression, args...), p.text(), strings.Join(p.problems, "\n"))
	}
}

// shows waits until the page shows a text.
func (p *tab) shows(text string) { p.t.Helper(); p.until(`document.body.innerText.includes(%s)`, text) }

// lacks waits until the page shows a text no more.
func (p *tab) lacks(text string) {
	p.t.Helper()
	p.until(`!document.body.innerText.includes(%s)`, text)
}

// reachable is an expression for the element with a role and a name that a person
// can reach: the last one, as dialogs come last.
const reachable = `[...document.querySelectorAll(%[1]s)].filter((n) => {
	const name = n.getAttribute("aria-label") ?? (n.labels?.length ? n.labels[0].textContent : n.textContent);
	return name.trim() === %[2]s && n.checkVisibility() && (!document.querySelector("dialog") || n.closest("dialog"));
}).at(-1)`

// click clicks with the mouse on what has a name, once it is there.
func (p *tab) click(selector, name string) {
	p.t.Helper()
	at := p.place(selector, name)
	p.do(chromedp.MouseClickXY(at[0], at[1]))
}

// place waits for what has a name, is not disabled and lies still, and says where it
// is.
func (p *tab) place(selector, name string) (at []float64) {
	p.t.Helper()
	p.until(`{
		const n = `+reachable+`;
		if (!n || n.disabled || n.getAttribute("aria-disabled") === "true") return false;
		n.scrollIntoView({ block: "nearest" });
		const { x, y, width, height } = n.getBoundingClientRect();
		const at = [x + width / 2, y + height / 2];
		const still = window.still?.n === n && String(window.still.at) === String(at);
		if (!still) window.still = { n, at, since: Date.now() };
		return still && Date.now() - window.still.since > 150 && n.contains(document.elementFromPoint(...at));
	}`, selector, name)
	return evaluate[[]float64](p, `window.still.at`)
}

func (p *tab) press(name string) { p.t.Helper(); p.click(`button, summary, a`, name) }

// fill writes into a field in place of what it has.
func (p *tab) fill(label, text string) {
	p.t.Helper()
	p.click(`input, textarea`, label)
	evaluate[bool](p, `(document.activeElement.select(), true)`)
	if text == "" {
		p.types("\b")
	}
	p.types(text)
}

func (p *tab) types(keys string) { p.t.Helper(); p.do(chromedp.KeyEvent(keys)) }

// enter opens the page of a gateway with its token.
func (g *gateway) enter(b *browser, at screen, path string) *tab {
	g.t.Helper()
	p := b.open(at, g.Address+"/"+path)
	p.fill("Token of this gateway", g.token())
	p.types("\r")
	p.until(`document.querySelector(".app")?.checkVisibility()`)
	return p
}

// fits fails unless all that is there to be used is named, can be reached with the
// keyboard, and fits the width of the screen.
func (p *tab) fits(where string) {
	p.t.Helper()
	wide := evaluate[[]string](p, `[...document.querySelectorAll("*")].filter((n) => n.checkVisibility() && !n.closest(".text pre, .note .text")
		&& (n.scrollWidth > n.clientWidth + 1 && ["auto", "scroll"].includes(getComputedStyle(n).overflowX) || n.getBoundingClientRect().right > innerWidth + 1)).map((n) => n.outerHTML.slice(0, 120))`)
	if len(wide) > 0 {
		p.t.Errorf("%s: wider than the screen are %q", where, wide)
	}
	ctx, end := context.WithTimeout(p.ctx, 30*time.Second)
	defer end()
	tree, err := chromedp.Run(ctx, func(ctx context.Context, target *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	if err != nil {
		p.t.Fatal(err)
	}
	controls := 0
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil || !slices.Contains([]string{`"button"`, `"link"`, `"textbox"`, `"searchbox"`, `"combobox"`, `"checkbox"`, `"DisclosureTriangle"`, `"dialog"`, `"main"`, `"navigation"`, `"complementary"`, `"list"`}, string(node.Role.Value)) {
			continue
		}
		controls++
		if node.Name == nil || strings.Trim(string(node.Name.Value), `"`) == "" {
			p.t.Errorf("%s: a %s has no name", where, node.Role.Value)
		}
	}
	if controls < 3 {
		p.t.Errorf("%s: only %d controls are told to who cannot see them", where, controls)
	}
}

// clean fails if a script failed, or tried what the page's policy forbids.
func (p *tab) clean() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.problems) > 0 {
		p.t.Errorf("the browser says:\n%s", strings.Join(p.problems, "\n"))
	}
}

// shot is a snapshot as the command line tells it.
type shot struct {
	Name, Note, Reason string
	Tags               map[string]string
	Pinned, Automatic  bool
}

// shots are all snapshots that the project has, by name.
func (u *user) shots() map[string]shot {
	u.t.Helper()
	var list []shot
	u.answer(&list, "list", "--include-auto")
	all := map[string]shot{}
	for _, s := range list {
		all[s.Name] = s
	}
	return all
}

// S0-16, S0-17, S0-51: snapshots are created, seen and deleted by the controls of the
// page, on a phone and at a desk. S0-09, S0-10, S0-11, S0-40, S0-43: selected and
// restored, too, with the reasons that people gave and those of the program.
func TestBrowserSnapshots(t *testing.T) {
	b := newBrowser(t)
	for name, at := range map[string]screen{"phone": phone, "desktop": desktop} {
		t.Run(name, func(t *testing.T) {
			u := newUser(t)
			u.do("--session=s1", "chat", "--message", "Plan the launch")
			g := u.gateway()
			p := g.enter(&browser{t, b.ctx}, at, "#/default/s1")
			p.shows("You said: \"Plan the launch\"")
			p.fits("a conversation")
			snapshots := func() {
				if at == phone {
					p.until(`document.querySelector(".conversation").checkVisibility()`)
					p.until(`document.querySelector('main a[href$="/snapshots"]')`)
					evaluate[bool](p, `(document.querySelector('main a[href$="/snapshots"]').click(), true)`)
				}
				p.until(`document.querySelector(".snapshots").checkVisibility()`)
			}
			snapshots()
			p.shows("No snapshots yet")

			p.press("Create snapshot")
			p.fits("a dialog")
			p.fill("Name", "not a name")
			p.press("Create")
			p.shows("a name has no spaces")
			p.fill("Name", "v1")
			p.fill("Reason", "All agreed")
			p.fill("Note", "before we get bold")
			p.fill("Tags", "area=launch, risk=low")
			p.press("Create")
			p.shows("Created v1.")
			p.until(`document.querySelector(".snapshots li")?.innerText.includes("before we get bold")`)
			if got := u.shots()["v1"]; got.Reason != "All agreed" || got.Note != "before we get bold" || got.Tags["risk"] != "low" {
				t.Errorf("created is %+v", got)
			}
			for _, text := range []string{"All agreed", "area=launch", "2 messages", "by hand"} {
				p.shows(text)
			}
			p.fits("the snapshots")

			u.do("--session=s1", "chat", "--message", "Forget the plan")
			p.press("View v1")
			p.shows("You look at the snapshot v1")
			p.until(`document.querySelector("textarea").disabled`)
			p.until(`!document.querySelector(".log").innerText.includes("Forget the plan")`)
			p.fits("a snapshot that is looked at")
			p.press("Return to live")
			p.lacks("You look at the snapshot")
			p.shows("Forget the plan")
			p.until(`!document.querySelector("textarea").disabled`)

			snapshots()
			p.press("View v1")
			p.shows("You look at the snapshot v1")
			snapshots()
			p.press("Restore v1")
			p.shows("Restored v1.")
			p.lacks("You look at the snapshot") // restoring ends it
			p.until(`!document.querySelector(".log").innerText.includes("Forget the plan")`)
			p.press("Undo")
			p.until(`document.querySelector(".log").textContent.includes("Forget the plan")`)
			snapshots()
			p.shows("before restore")
			p.shows("automatic")

			p.press("More actions for v1")
			p.press("Copy")
			p.fill("Name of the copy", "v2")
			p.press("Copy")
			p.until(`[...document.querySelectorAll(".snapshots h3")].some((n) => n.textContent === "v2")`)
			p.press("More actions for v2")
			p.press("Rename")
			p.fill("Name", "v3")
			p.press("Rename")
			p.until(`[...document.querySelectorAll(".snapshots h3")].some((n) => n.textContent === "v3")`)
			p.press("More actions for v3")
			p.press("Note and tags")
			p.fill("Note", "a branch")
			p.fill("Tags", "area=db")
			p.press("Save")
			p.shows("a branch")
			p.press("More actions for v3")
			p.press("Pin")
			p.shows("pinned")
			if got := u.shots()["v3"]; got.Note != "a branch" || len(got.Tags) != 1 || got.Tags["area"] != "db" || !got.Pinned {
				t.Errorf("v3 is %+v", got)
			}

			p.press("Delete v3")
			p.shows("goes to the trash")
			p.press("Cancel")
			if _, ok := u.shots()["v3"]; !ok {
				t.Error("v3 is gone, and nobody confirmed that")
			}
			p.press("Delete v3")
			p.press("Delete")
			p.shows("Deleted v3.")
			if _, ok := u.shots()["v3"]; ok {
				t.Error("v3 is there after it was deleted")
			}
			p.press("Undo the last change")
			p.until(`[...document.querySelectorAll(".snapshots h3 .name")].some((n) => n.textContent === "v3")`)
			p.clean()
		})
	}
}

// A person holds a conversation: it comes as it is said, is stopped, asks what it may
// do, and the sessions are found, renamed, pinned, deleted and brought back.
func TestBrowserConversation(t *testing.T) {
	u := newUser(t)
	g := u.gateway()
	p := g.enter(newBrowser(t), desktop, "")
	p.shows("No sessions yet")
	p.press("New session")
	p.fill("Title", "The launch")
	p.press("Create")
	p.shows("Nothing has been said yet")

	say := func(text string) {
		t.Helper()
		p.until(`document.querySelector("textarea").checkVisibility() && document.querySelector('[aria-label="Send"]').checkVisibility()`)
		p.fill("Message", text)
		p.types("\r")
	}
	say("hello there")
	p.shows("You said: \"hello there\"")
	say("slow 2000 20ms")
	p.shows("answering")
	p.until(`document.querySelector(".message:last-child .text")?.textContent.includes("3 ")`) // as it comes
	p.press("Stop the answer")
	p.until(`document.querySelector('[aria-label="Send"]').checkVisibility()`)

	say("/sess save v1")
	p.shows("saved v1")
	say("/sess nosuch")
	p.shows("nosuch")
	p.until(`document.querySelector("textarea").value === "/sess nosuch"`) // what was refused is not lost
	p.press("Dismiss")
	for _, allow := range []string{"Refuse", "Allow"} {
		say(`call sess_manage {"action":"delete","name":"v1"}`)
		p.shows("The agent asks")
		p.fits("a question")
		p.press(allow)
		p.lacks("The agent asks")
		p.until(`document.querySelector('[aria-label="Send"]').checkVisibility()`)
		if _, there := u.shots()["v1"]; there == (allow == "Allow") {
			t.Errorf("after %s the snapshot is there: %v", allow, there)
		}
	}
	say("fail")
	p.shows("failed because it was told to")

	var list []struct{ ID string }
	u.answer(&list, "sessions", "list")
	u.do("--session="+list[0].ID, "sessions", "notifications", "add", "The plan is exported")
	p.press("Notifications (1 new)")
	p.shows("The plan is exported")
	p.fits("the notifications")
	p.press("Mark all as seen")
	p.until(`!document.querySelector("dialog li:not(.seen)")`)
	p.press("Close")
	p.until(`document.querySelector('[aria-label="Notifications"]')`)

	p.press("More actions for The launch")
	p.press("Rename")
	p.fill("Title", "The newsletter")
	p.press("Rename")
	p.until(`document.querySelector(".conversation h1").textContent === "The newsletter"`)
	p.press("More actions for The newsletter")
	p.press("Pin")
	p.until(`document.querySelector(".sessions .title")?.textContent.includes("pinned")`)
	u.do("--project=website", "--session=w1", "chat", "--message", "Another topic") // is seen at once
	p.shows("Another topic")
	p.fill("Search sessions; Enter looks in all messages", "newsletter")
	p.until(`document.querySelectorAll(".sessions li").length === 1`)
	p.fill("Search sessions; Enter looks in all messages", "topic")
	p.types("\r")
	p.until(`document.querySelector(".sessions mark")?.textContent === "topic"`)
	p.press("Back to all sessions")
	evaluate[bool](p, `(() => { const s = document.querySelector('select[aria-label="Project"]'); s.value = "website"; s.dispatchEvent(new Event("change")); return true })()`)
	p.until(`document.querySelectorAll(".sessions li").length === 1 && document.querySelector(".sessions li").innerText.includes("Another topic")`)

	p.press("More actions for Another topic")
	p.press("Delete")
	p.shows("Its snapshots stay")
	p.press("Delete")
	p.shows("is in the trash")
	p.press("Trash")
	p.press("Restore Another topic")
	p.shows("is back")
	p.until(`document.querySelector(".conversation h1").textContent === "Another topic"`)
	if u.answer(&list, "sessions", "list"); len(list) != 2 {
		t.Errorf("the sessions are %+v", list)
	}
	p.clean()
}

// Markup in a text is text, wherever the text stands: nothing of it runs or is loaded.
func TestBrowserShowsTextAsText(t *testing.T) {
	const image, script = `<img src=/x onerror=alert(1)>`, `"></script><script>alert(2)</script>`
	u := newUser(t)
	u.do("--session=s1", "chat", "--message", image+"\n```html\n"+script+"\n```\n"+script)
	u.do("--session=s1", "chat", "--message", "think "+image)
	u.do("--session=s1", "chat", "--message", `call sess_manage {"action":"`+image+`"}`)
	u.do("sessions", "rename", "s1", image+script)
	u.do("--session=s1", "save", "v1", "--note="+image+script, "--reason="+script+image, "--tags=area="+image)
	u.do("--session=s1", "sessions", "notifications", "add", image+script, "--kind="+image)
	file := filepath.Join(u.home, "sessions", "default", "s1.json")
	stored, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// Another program may have stored other roles and models.
	write(t, file, strings.NewReplacer(`"model":"offline/echo"`, `"model":"offline/<img src=/x onerror=alert(3)>"`, `"name":"sess_manage"`, `"name":"<img src=/x onerror=alert(4)>"`).Replace(string(stored)), 0o600)
	g := u.gateway()
	p := g.enter(newBrowser(t), desktop, "#/default/s1")
	evaluate[bool](p, `(window.alert = (what) => { window.ran = what; }, true)`)
	p.until(`document.querySelector(".snapshots li")`)
	p.shows("think " + image)
	for _, place := range []string{".conversation h1", ".sessions .title", ".log", ".snapshots .why", ".snapshots .tag"} {
		p.until(`document.querySelector(%s)?.textContent.includes(%s)`, place, image)
	}
	p.until(`document.querySelector(".log pre")?.textContent.includes(%s)`, script)
	p.press("Notifications (1 new)")
	p.until(`document.querySelector("dialog")?.textContent.includes(%s)`, image+script)
	p.press("Close")
	p.fill("Search sessions; Enter looks in all messages", "onerror")
	p.types("\r")
	p.until(`document.querySelector(".sessions mark")`)
	p.fill("Message", "/sess save '"+image+"'") // an error that repeats it
	p.types("\r")
	p.until(`document.querySelector(".note.error")?.textContent.includes("img")`)
	if found := evaluate[int](p, `document.querySelectorAll("img, iframe, object, embed, script:not([src='/assets/page.js'])").length`); found > 0 {
		t.Errorf("%d elements came of a text", found)
	}
	if ran := evaluate[string](p, `String(window.ran)`); ran != "undefined" {
		t.Errorf("a script ran: %s", ran)
	}
	p.fits("all of it")
	p.clean()
}

// The page over restarts of the gateway, with the same token and with another one,
// beside the command line and a second tab.
func TestBrowserOverRestarts(t *testing.T) {
	u := newUser(t)
	u.do("--session=s1", "chat", "--message", "hello")
	u.do("save", "v1")
	u.do("save", "v2")
	u.do("save", "v3")
	g := u.gateway()
	address := strings.TrimPrefix(g.Address, "http://")
	again := func() {
		t.Helper()
		u.do("gateway", "stop")
	}
	u.stopsGateway()
	b := newBrowser(t)
	one, two := g.enter(b, desktop, "#/default/s1"), g.enter(b, phone, "#/default/s1/snapshots")
	tabs := []*tab{one, two}
	there := func(name string, want bool) {
		t.Helper()
		for _, p := range tabs {
			p.until(`[...document.querySelectorAll(".snapshots h3 .name")].some((n) => n.textContent === %s) === %v`, name, want)
		}
	}
	there("v1", true)

	again()
	for _, p := range tabs {
		p.shows("The gateway does not answer")
	}
	u.do("delete", "v1")
	u.do("gateway", "start", "--listen="+address)
	there("v1", false) // by itself
	for _, p := range tabs {
		p.lacks("The gateway does not answer")
	}
	one.fill("Message", "after the restart")
	one.types("\r")
	one.shows("You said: \"after the restart\"")

	// Two clicks delete once. Another tab that asks for the same is told so.
	two.press("Delete v2")
	two.shows("goes to the trash")
	one.press("Delete v2")
	at := one.place("button", "Delete")
	one.do(chromedp.MouseClickXY(at[0], at[1]), chromedp.MouseClickXY(at[0], at[1]))
	one.shows("Deleted v2.")
	there("v2", false)
	two.press("Delete")
	two.shows("v2 is already gone.")
	if got := u.shots(); len(got) != 1 {
		t.Errorf("the snapshots are %+v, want v3", got)
	}

	again()
	u.do("gateway", "token", "--rotate", "--show")
	u.do("gateway", "start", "--listen="+address)
	for _, p := range tabs {
		p.shows("The gateway has another token now")
		p.fill("Token of this gateway", "wrong")
		p.types("\r")
		p.shows("This is not the token of this gateway.")
		p.fill("Token of this gateway", g.token())
		p.types("\r")
	}
	there("v3", true) // where it was
	for _, p := range tabs {
		p.clean()
		if left := evaluate[string](p, `location.href`); strings.Contains(left, g.token()) || !strings.Contains(left, "#/default/s1") {
			t.Errorf("the address is %s", left)
		}
		if kept := evaluate[int](p, `localStorage.length`); kept != 0 {
			t.Errorf("%d things were kept on the device, and nobody wanted that", kept)
		}
	}
	if log := u.log(); strings.Contains(log, g.token()) {
		t.Error("the token is in the log")
	}
	one.press("Forget token")
	one.until(`document.querySelector("#token")?.checkVisibility() && sessionStorage.length === 0`)
}

// Where a person wants it the token stays on the device, until it is forgotten. All
// that the page does can be done with the keyboard.
func TestBrowserKeyboard(t *testing.T) {
	u := newUser(t)
	u.do("--session=s1", "chat", "--message", "hello")
	g := u.gateway()
	b := newBrowser(t)
	p := b.open(desktop, g.Address+"/#/default/s1")
	p.until(`document.activeElement?.id === "token"`)
	p.types(g.token() + "\t ")
	p.types("\r")
	p.shows("You said: \"hello\"")
	p.do(chromedp.Reload())
	p.shows("You said: \"hello\"")
	second := b.open(desktop, g.Address+"/#/default/s1")
	second.shows("You said: \"hello\"")

	focused := func() string {
		t.Helper()
		return evaluate[string](p, `(() => { const n = document.activeElement; return (n.getAttribute("aria-label") ?? n.labels?.[0]?.textContent ?? n.textContent).trim() })()`)
	}
	// tab presses the Tab key until the focus is on what has a name.
	tabTo := func(name string) {
		t.Helper()
		var seen []string
		for range 60 {
			if focused() == name {
				return
			}
			p.types("\t")
			seen = append(seen, focused())
		}
		t.Fatalf("the Tab key leads to %q and never to %s", seen, name)
	}
	evaluate[bool](p, `(document.activeElement.blur(), true)`)
	p.types("/")
	if got := focused(); !strings.HasPrefix(got, "Search sessions") {
		t.Errorf("the focus is on %q", got)
	}
	tabTo("Message")
	p.types("typed\r")
	p.shows("You said: \"typed\"")
	tabTo("Create snapshot")
	p.types("\r")
	p.until(`document.activeElement?.name === "name"`)
	p.types("kept\r")
	p.shows("Created kept.")
	p.until(`document.activeElement?.getAttribute("aria-label") === "Create snapshot"`) // back where it was
	tabTo("Delete kept")
	p.types("\r")
	p.until(`document.querySelector("dialog")`)
	p.types("\x1b")
	p.until(`!document.querySelector("dialog") && document.activeElement?.getAttribute("aria-label") === "Delete kept"`)
	tabTo("More actions for kept")
	p.types("\r")
	p.until(`document.querySelector(".snapshots details[open]")`)
	p.types("\x1b")
	p.until(`!document.querySelector(".snapshots details[open]")`)
	p.clean()
}
