package chat_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sess/host/models"
	"sess/plugin"
)

// twoModels lets a desk's chats choose between two models.
func twoModels(d *desk) {
	d.opts.OpenModel = func(name string) (models.Model, error) {
		return models.Open(name, models.Config{Providers: map[string]models.Provider{"other": {Kind: "offline", Model: "echo"}}})
	}
	d.opts.Models = func() []plugin.Candidate {
		return []plugin.Candidate{{Value: "offline/echo", Help: "the configured default"}, {Value: "other/echo"}}
	}
	d.open(nil)
}

func (d *desk) modelName() string {
	d.t.Helper()
	var name string
	_ = json.Unmarshal(d.live().Get("model"), &name)
	return name
}

// S1-21: a session names the model that it talks with.
func TestModelIsSwitched(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	twoModels(d)
	d.equal("shown", []string{"answer: model offline/echo; these can be had with /model <provider/model>:\n*  offline/echo  the configured default\n   other/echo"}, d.send("/model"))
	d.equal("switched", []string{"answer: this session now talks with other/echo"}, d.send("/model other/echo"))
	if got := d.modelName(); got != "other/echo" {
		t.Errorf("the session names %q, want the new model at once", got)
	}
	d.send("hi")
	d.open(nil) // as after a restart
	d.send("ho")
	if got := d.modelName(); got != "other/echo" {
		t.Errorf("after a restart the session talks with %q", got)
	}
	d.equal("the provider alone", []string{"answer: this session now talks with offline/echo"}, d.send("/model offline"))
	for line, want := range map[string]string{
		"/model nobody/x":         `there is no provider "nobody"`,
		"/model offline/echo two": "/model takes one name, not 2 words",
	} {
		if got := strings.Join(d.fail(plugin.Usage, line), "\n"); !strings.Contains(got, want) {
			t.Errorf("%s shows %q, want %q", line, got, want)
		}
	}
	if got := d.modelName(); got != "offline/echo" {
		t.Errorf("after failures the session talks with %q", got)
	}
}

func TestModelForTheNextTurn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	twoModels(d)
	if err := d.chat.UseModel("nobody/x"); err == nil {
		t.Error("UseModel took a model that is not there")
	}
	if err := d.chat.UseModel("other"); err != nil {
		t.Fatal(err)
	}
	d.send("/session")
	if got := d.modelName(); got == "other/echo" {
		t.Error("the session names a model before a turn has used it")
	}
	d.send("hi")
	if got := d.modelName(); got != "other/echo" {
		t.Errorf("the session names %q", got)
	}
}

// A load brings the model of what was saved back with it.
func TestLoadBringsTheModelBack(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	twoModels(d)
	d.send("hi", "/pad save v1", "/model other/echo", "ho", "/pad load v1")
	if got := strings.Join(d.send("/session"), "\n"); !strings.Contains(got, "model     offline/echo") {
		t.Errorf("after the load: %s", got)
	}
	d.send("again")
	if got := d.modelName(); got != "offline/echo" {
		t.Errorf("the session talks with %q", got)
	}
}

func TestModelThatIsGone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	twoModels(d)
	d.send("/model other/echo", "hi")
	d.opts.OpenModel = func(name string) (models.Model, error) { return models.Open(name, models.Config{}) }
	d.open(nil)
	got := d.send("ho")
	if want := `notice: model "other/echo": there is no provider "other"; offline/echo answers instead`; len(got) != 2 || got[0] != want {
		t.Errorf("shown %q, want first %q", got, want)
	}
	if got := d.send("again"); len(got) != 1 {
		t.Errorf("told again: %q", got)
	}
}

func TestModelOfAReadOnlySession(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	twoModels(d)
	if err := d.store.Select(t.Context(), d.ref, "0198-snapshot"); err != nil {
		t.Fatal(err)
	}
	d.fail(plugin.ReadOnly, "/model other/echo")
}

// A turn that died is taken up whole, also where the model changes first.
func TestModelAfterAnInterruption(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	file := filepath.Join(d.dir, d.ref.Project, "cut.json")
	const cut = `{"id":"cut","title":"t","cwd":"/x","status":"running","messages":[
		{"id":"a","role":"user","content":"hello","status":"complete","createdAt":1,"updatedAt":1},
		{"id":"b","role":"agent","content":"half an","status":"streaming","createdAt":1,"updatedAt":1}],"activities":[],"artifacts":[],"createdAt":1,"updatedAt":1,
		"sess":{"format":"sess/1","revision":1,"lists":{"history":{"sealed":0,"bytes":0,"tail":[{"role":"user","content":"hello"}]}}}}`
	if err := os.WriteFile(file, []byte(cut), 0o600); err != nil {
		t.Fatal(err)
	}
	d.ref.ID = "cut"
	twoModels(d)
	d.send("/model other/echo")
	d.equal("history", []string{"user: hello", "assistant: half an"}, d.history())
}

func TestChatWithOneModel(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.fail(plugin.Usage, "/model other/echo")
	d.equal("the only one", []string{"answer: model offline/echo; these can be had with /model <provider/model>:\n*  offline/echo"}, d.send("/model"))
}
