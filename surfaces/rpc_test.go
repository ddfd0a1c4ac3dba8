package surfaces_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
	"sess/surfaces"
)

func TestLowerRPC(t *testing.T) {
	t.Parallel()
	s := spec(t)
	tests := []struct {
		name, verb, params string
		want               []string // argv
		host               string   // agent/project/session
		whole              bool
		err                string
	}{
		{"an action", "", `{"action":"save","name":"-v1","note":"a b","agent":"a","project":"p","session":"s"}`, []string{"save", "--note=a b", "--", "-v1"}, "a/p/s", false, ""},
		{"another name of it", "", `{"action":"rm","name":"v1","confirm":true}`, []string{"delete", "--confirm", "--", "v1"}, "//", false, ""},
		{"the verb of the method", "trash restore", `{"name":"v1"}`, []string{"trash", "restore", "--", "v1"}, "//", false, ""},
		{"no params", "trash list", ``, []string{"trash", "list"}, "//", false, ""},
		{"words", "", `{"argv":["save","v1","--note=--json","-o"],"agent":"a","project":"p","session":"s"}`, []string{"save", "v1", "--note=--json", "-o"}, "a/p/s", true, ""},
		{"words that are values of a flag", "", `{"argv":["save","v1","--note","--session"]}`, []string{"save", "v1", "--note", "--session"}, "//", true, ""},
		{"words behind the flags' end", "", `{"argv":["save","--","--json"]}`, []string{"save", "--", "--json"}, "//", true, ""},
		{"words without a verb", "", `{"argv":["nothing","x"]}`, []string{"nothing", "x"}, "//", true, ""},
		{"a field named argv of a method's verb", "trash list", `{"argv":["x"]}`, nil, "", false, `unknown field "argv": trash list takes no fields`},
		{"both forms", "", `{"argv":["list"],"action":"list"}`, nil, "", false, "both action and argv are given; give one of them"},
		{"neither form", "", `{}`, nil, "", false, "action is missing; the actions are save, load, list, new, copy, delete, drop, tag, trash list, trash restore"},
		{"an internal verb", "", `{"action":"op"}`, nil, "", false, `unknown action "op": the actions are save, load, list, new, copy, delete, drop, tag, trash list, trash restore; did you mean cp?`},
		{"no words", "", `{"argv":[]}`, nil, "", false, `argv is empty; give a verb and its words, such as ["save"]`},
		{"words that are none", "", `{"argv":["drop",1]}`, nil, "", false, "argv: number is not a string"},
		{"a list as params", "", `["list"]`, nil, "", false, `["list"] is not a JSON object; send one JSON object such as {"name": "v1"}`},
		{"a field too many", "", `{"argv":["list"],"cwd":"/"}`, nil, "", false, `unknown field "cwd": it takes argv, agent, project, session, input`},
		{"a misspelt field", "", `{"argv":["list"],"sesion":"s"}`, nil, "", false, `unknown field "sesion": it takes argv, agent, project, session, input; did you mean session?`},
		{"a field in another case", "", `{"argv":["list"],"Session":"s"}`, nil, "", false, `unknown field "Session": it takes argv, agent, project, session, input; did you mean session?`},
		{"an empty project", "", `{"argv":["list"],"project":""}`, nil, "", false, "project is empty; leave it out for the default"},
		{"null", "", `{"argv":["list"],"project":null}`, nil, "", false, "project is null; leave the field out"},
		{"a flag of the host with a value", "", `{"argv":["list","--project=p"]}`, nil, "", false, "--project has no meaning in argv; give it as the field project beside argv"},
		{"before the verb", "", `{"argv":["--session","s","list"]}`, nil, "", false, "--session has no meaning in argv; give it as the field session beside argv"},
		{"at the end, without one", "", `{"argv":["list","--agent"]}`, nil, "", false, "--agent has no meaning in argv; give it as the field agent beside argv"},
		{"a switch of the host", "", `{"argv":["list","--json"]}`, nil, "", false, "--json has no meaning in argv; leave it out"},
		{"a letter", "", `{"argv":["list","-q"]}`, nil, "", false, "--quiet has no meaning in argv; leave it out"},
		{"help", "", `{"argv":["list","--help"]}`, nil, "", false, "--help has no meaning in argv; leave it out"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			call, err := surfaces.LowerRPC(s, tt.verb, json.RawMessage(tt.params))
			if got := text(t, err); got != tt.err {
				t.Fatalf("error %q, want %q", got, tt.err)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(tt.want, call.Argv); diff != "" {
				t.Errorf("argv (-want +got):\n%s", diff)
			}
			if host := call.Agent + "/" + call.Project + "/" + call.Session; host != tt.host || call.Whole != tt.whole {
				t.Errorf("host fields %q, whole %v, want %q, %v", host, call.Whole, tt.host, tt.whole)
			}
			if v, _ := s.Find(call.Argv); call.Verb != v {
				t.Errorf("verb %v, want %v", call.Verb, v)
			}
		})
	}
}

func TestRenderRPC(t *testing.T) {
	t.Parallel()
	read, write := &plugin.Verb{Effect: plugin.EffectRead}, &plugin.Verb{Effect: plugin.EffectWrite}
	full := plugin.Result{Text: "t", Data: json.RawMessage(`[1]`), Notices: []string{"n"}, Page: &plugin.Page{Total: 3, Next: "x"}}
	for _, tt := range []struct {
		name   string
		call   surfaces.RPCCall
		result plugin.Result
		want   string
	}{
		{"what only reads", surfaces.RPCCall{Verb: read}, full, `[1]`},
		{"without data", surfaces.RPCCall{Verb: read}, plugin.Result{Text: "t"}, `"t"`},
		{"with nothing", surfaces.RPCCall{Verb: read}, plugin.Result{}, `null`},
		{"the whole", surfaces.RPCCall{Verb: read, Whole: true}, full, `{"text":"t","data":[1],"notices":["n"],"page":{"total":3,"next":"x"}}`},
		{"a change", surfaces.RPCCall{Verb: write}, plugin.Result{Text: "t", Data: json.RawMessage(`{}`)}, `{"text":"t","data":{}}`},
		{"a change with nothing", surfaces.RPCCall{Verb: write}, plugin.Result{}, `{"text":"","data":null}`},
	} {
		got, err := surfaces.RenderRPC(tt.call, tt.result)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v, want %s", tt.name, got, err, tt.want)
		}
	}
	for _, call := range []surfaces.RPCCall{{Verb: read}, {Verb: write}} {
		if _, err := surfaces.RenderRPC(call, plugin.Result{Data: json.RawMessage("{")}); !errors.Is(err, &plugin.Error{Code: plugin.Internal}) {
			t.Errorf("data that are no JSON: %v, want internal", err)
		}
	}
}

// Every code has its own number, and its name beside it.
func TestRenderRPCError(t *testing.T) {
	t.Parallel()
	for _, info := range plugin.Codes() {
		err := plugin.Errorf(info.Code, "no %w", errors.New("secret")).WithHint("do that").WithDetail("name", "x")
		want := surfaces.RPCError{Code: info.JSONRPC, Message: "no secret", Data: surfaces.RPCErrorData{Code: info.Code, Hint: "do that", Details: map[string]string{"name": "x"}}}
		if diff := cmp.Diff(want, surfaces.RenderRPCError(err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", info.Code, diff)
		}
	}
	if got := surfaces.RenderRPCError(errors.New("a bug")); got.Code != -32603 || got.Data.Code != plugin.Internal {
		t.Errorf("an error without a code = %+v", got)
	}
}

// Whatever the params, nothing but what they say in their own fields reaches the
// command, and a mistake is usage.
func FuzzLowerRPC(f *testing.F) {
	for _, params := range []string{
		`{"action":"save","name":"v1","tags":{"a":"b"}}`, `{"argv":["save","v1","--note","x"],"session":"s"}`, `{"argv":["--","--session=x"]}`,
		`{"argv":["list","--session"]}`, `{"argv":["list","-qv"]}`, `{"action":"list","argv":["list"]}`, `[]`, `{`, `null`, "{\"argv\":[\"\xff\"]}",
	} {
		f.Add([]byte(params))
	}
	s := spec(f)
	f.Fuzz(func(t *testing.T, params []byte) {
		call, err := surfaces.LowerRPC(s, "", params)
		if err != nil {
			text(t, err) // usage
			return
		}
		var given struct {
			Argv                    []string
			Agent, Project, Session string
		}
		if err := json.Unmarshal(params, &given); call.Whole && (err != nil || !slices.Equal(given.Argv, call.Argv) || given.Session != call.Session) {
			t.Errorf("%q became %q in session %q (%v)", params, call.Argv, call.Session, err)
		}
		if len(call.Argv) == 0 {
			t.Errorf("%q became nothing", params)
		}
		words := call.Argv
		if end := slices.Index(words, "--"); end >= 0 {
			words = words[:end]
		}
		flags, _, err := surfaces.SplitHostFlags(words, func(w []string) *plugin.Verb { v, _ := s.Find(w); return v })
		if err == nil && flags != (surfaces.HostFlags{}) {
			t.Errorf("%q lets flags of the host through: %q", params, strings.Join(words, " "))
		}
	})
}
