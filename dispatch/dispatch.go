package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/google/uuid"

	"sess/plugin"
)

// Dispatcher answers calls with the verbs of one [Command]. It is made by
// [New], never changes, and is safe for concurrent use.
type Dispatcher struct {
	log   *slog.Logger // nil: others log
	spec  plugin.Spec
	verbs map[string]*verb // by name
}

var _ plugin.Dispatcher = (*Dispatcher)(nil)

// Spec is what the declarations say, in the order of the declarations. The
// caller must not change what its slices hold.
func (d *Dispatcher) Spec() plugin.Spec { return d.spec }

// Dispatch parses the argv of a call and runs its verb. Everything wrong with
// the argv has the code usage and is found before the verb runs. A panic of the
// verb, and any error that is not a [*plugin.Error], is logged under an incident
// id that the answer carries. progress may be nil.
func (d *Dispatcher) Dispatch(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, error) {
	if err := ctx.Err(); err != nil {
		return plugin.Result{}, plugin.AsError(err)
	}
	v, rest, err := d.find(call.Argv, call.Caller.Internal())
	if err != nil {
		return plugin.Result{}, err
	}
	if v.ByHand && call.Caller != plugin.CallerCLI {
		return plugin.Result{}, plugin.Errorf(plugin.Denied, "%s %s is for people only, at the command line of its own machine", d.spec.Command, v.Name).
			WithHint("a person has to run it there")
	}
	in := &Invocation{Call: call, verb: v, progress: progress}
	if err := in.parse(rest); err != nil {
		return plugin.Result{}, err
	}
	content, err := in.content()
	if err != nil {
		return plugin.Result{}, err
	}
	result, err := d.run(ctx, in)
	if err == nil && content != nil {
		err = content.answer(&result)
	}
	if err != nil {
		return plugin.Result{}, d.report(ctx, in, err)
	}
	return result, nil
}

// panicked is what a recovered panic becomes on its way to the log.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// Stack is where it happened, for the log.
func (p *panicked) Stack() string { return string(p.stack) }

func (d *Dispatcher) run(ctx context.Context, in *Invocation) (result plugin.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &plugin.Error{
				Code:    plugin.Internal,
				Message: d.spec.Command + " " + in.verb.Name + " failed because of a bug",
				Err:     &panicked{value: r, stack: debug.Stack()},
			}
		}
	}()
	if in.verb.AfterTurn && in.Call.Turn != "" {
		if in.verb.Check != nil {
			err = in.verb.Check(ctx, in)
		}
		return plugin.Result{}, err
	}
	return in.verb.Run(ctx, in)
}

// report makes an error fit to be sent. An internal one is logged here, once,
// since what it wraps does not leave the process. Where nothing is logged it
// names no incident.
func (d *Dispatcher) report(ctx context.Context, in *Invocation, err error) error {
	e := plugin.AsError(err)
	if d.log == nil || e.Code != plugin.Internal || e.Details["incident"] != "" {
		return e
	}
	p, bug := e.Err.(*panicked)
	if !d.log.Enabled(ctx, slog.LevelError) {
		if bug { // nobody can look it up
			told := *e
			told.Message += ": " + p.Error()
			return &told
		}
		return e
	}
	incident := uuid.NewString()
	attrs := []slog.Attr{
		slog.String("incident", incident),
		slog.String("verb", in.verb.Name),
		slog.String("request_id", in.Call.RequestID),
		slog.String("err", e.Message),
		slog.Any("cause", e.Err),
	}
	if bug {
		attrs = append(attrs, slog.String("stack", p.Stack()))
	}
	d.log.LogAttrs(ctx, slog.LevelError, "verb failed", attrs...)
	if e.Hint == "" {
		e = e.WithHint("look for incident %s in the log", incident)
	}
	return e.WithDetail("incident", incident)
}

// find resolves the verb at the start of argv and returns the words after it.
func (d *Dispatcher) find(argv []string, internal bool) (*verb, []string, error) {
	if found, n := d.spec.Find(argv); found != nil && (internal || !found.Internal) {
		return d.verbs[found.Name], argv[n:], nil
	}
	var names, words, group []string
	for i := range d.spec.Verbs {
		v := &d.spec.Verbs[i]
		if v.Internal && !internal {
			continue
		}
		names = append(names, v.Name)
		words = append(append(words, v.Name), v.Aliases...)
		if len(argv) > 0 && strings.HasPrefix(v.Name, argv[0]+" ") {
			group = append(group, v.Name)
		}
	}
	if len(argv) == 0 {
		return nil, nil, plugin.Errorf(plugin.Usage, "%s: no verb is given", d.spec.Command).
			WithHint("the verbs are %s", strings.Join(names, ", "))
	}
	if strings.HasPrefix(argv[0], "-") {
		return nil, nil, plugin.Errorf(plugin.Usage, "%s: %q stands where the verb should", d.spec.Command, argv[0]).
			WithHint("write the verb first, then its flags")
	}
	typed := argv[0]
	if len(argv) > 1 && (len(group) > 0 || len(plugin.Nearest(typed, words)) == 0) {
		typed += " " + argv[1]
	}
	if len(group) > 0 && (len(argv) == 1 || strings.HasPrefix(argv[1], "-")) {
		return nil, nil, plugin.Errorf(plugin.Usage, "%s needs a second word", argv[0]).
			WithHint("write one of %s", strings.Join(group, ", ")).
			WithDetail("candidates", strings.Join(group, ", "))
	}
	candidates := plugin.Nearest(typed, words)
	if candidates == nil {
		candidates = group
	}
	if candidates == nil {
		return nil, nil, plugin.Errorf(plugin.Usage, "unknown verb %q", argv[0]).
			WithHint("the verbs are %s", strings.Join(names, ", "))
	}
	return nil, nil, plugin.Errorf(plugin.Usage, "unknown verb %q", typed).
		WithHint("did you mean %s?", strings.Join(candidates, " or ")).
		WithDetail("candidates", strings.Join(candidates, ", "))
}

// flagNames lists the flags that the caller may use, without dashes.
func (v *verb) flagNames(internal bool) []string {
	var names []string
	for _, f := range v.spec.Flags {
		if f.Internal && !internal {
			continue
		}
		names = append(names, f.Name)
		if f.Negatable {
			names = append(names, "no-"+f.Name)
		}
	}
	return names
}
