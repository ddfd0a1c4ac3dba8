package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"sess/plugin"
	pb "sess/plugin/wire/pluginv1"
	"sess/store/transcript"
)

// fill sets every field below v to a value that is not its zero, and no two
// alike. text makes the strings.
func fill(v reflect.Value, n *int, text func(n int) string) {
	*n++
	switch v.Interface().(type) {
	case json.RawMessage:
		v.SetBytes(fmt.Appendf(nil, `{"n":%d}`, *n))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(int64(*n), 0).UTC()))
		return
	case transcript.Document:
		v.Set(reflect.ValueOf(document()))
		return
	case error:
		return // stays behind
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text(*n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			if v.Type().Elem().Kind() == reflect.Uint8 {
				v.Index(i).SetUint(uint64(*n%200 + i))
				continue
			}
			fill(v.Index(i), n, text)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, n, text)
			fill(value, n, text)
			v.SetMapIndex(key, value)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n, text)
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.Kind() == reflect.Interface {
				continue // a cause stays behind, and what is streamed crosses for itself
			}
			fill(field, n, text)
		}
	default:
		panic("no filler for " + v.Type().String())
	}
}

func filled[T any](text func(n int) string) T {
	var v T
	n := 0
	fill(reflect.ValueOf(&v).Elem(), &n, text)
	return v
}

func document() transcript.Document {
	return transcript.Document{
		Format: transcript.Format,
		Meta: transcript.Meta{
			ID:        "0190",
			Title:     "a title",
			Messages:  2,
			CreatedAt: time.Unix(1, 0).UTC(),
			UpdatedAt: time.Unix(2, 0).UTC(),
		},
		Header: json.RawMessage(`{"cwd":"/x"}`),
		Lists: map[string]*transcript.List{
			transcript.ListMessages: {Records: 2, Tail: []transcript.Record{
				transcript.Record(`{"id": 1}`),
				transcript.Record("not json\r"),
			}},
		},
	}
}

// cross sends m over the wire's encoding.
func cross[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatalf("proto.Marshal(%T): %v", m, err)
	}
	out := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(data, out); err != nil {
		t.Fatalf("proto.Unmarshal(%T): %v", m, err)
	}
	return out.(M)
}

// crossing is one type's way over the wire and back.
type crossing struct {
	name string
	run  func(t *testing.T, text func(n int) string) (sent, got any)
}

func way[T any](over func(t *testing.T, v T) (T, error)) crossing {
	return crossing{reflect.TypeFor[T]().Name(), func(t *testing.T, text func(n int) string) (any, any) {
		t.Helper()
		sent := filled[T](text)
		got, err := over(t, sent)
		if err != nil {
			t.Fatalf("the way back: %v", err)
		}
		return sent, got
	}}
}

func crossings() []crossing {
	return []crossing{
		way(func(t *testing.T, v plugin.Description) (plugin.Description, error) {
			m, err := toDescription(v)
			if err != nil {
				return v, err
			}
			return fromDescription(cross(t, m))
		}),
		way(func(t *testing.T, v plugin.Configuration) (plugin.Configuration, error) {
			return fromConfiguration(cross(t, toConfiguration(v, 7))), nil
		}),
		way(func(t *testing.T, v plugin.Call) (plugin.Call, error) {
			return fromCall(cross(t, toCall(v))), nil
		}),
		way(func(t *testing.T, v plugin.Result) (plugin.Result, error) {
			return fromResult(cross(t, toResult(v))), nil
		}),
		way(func(t *testing.T, v plugin.Progress) (plugin.Progress, error) {
			return fromProgress(cross(t, toProgress(v))), nil
		}),
		way(func(t *testing.T, v plugin.Event) (plugin.Event, error) {
			return fromEvent(cross(t, toEvent(v))), nil
		}),
		way(func(t *testing.T, v plugin.CompleteRequest) (plugin.CompleteRequest, error) {
			return fromComplete(cross(t, toComplete(v))), nil
		}),
		way(func(t *testing.T, v plugin.Candidate) (plugin.Candidate, error) {
			m := &pb.CompleteResponse{Candidates: toCandidates([]plugin.Candidate{v})}
			return fromCandidates(cross(t, m).GetCandidates())[0], nil
		}),
		way(func(t *testing.T, v plugin.ServiceStatus) (plugin.ServiceStatus, error) {
			m := &pb.StatusResponse{Services: toServices([]plugin.ServiceStatus{v})}
			return fromServices(cross(t, m).GetServices())[0], nil
		}),
		way(func(t *testing.T, v plugin.SessionRef) (plugin.SessionRef, error) {
			return fromRef(cross(t, toRef(v))), nil
		}),
		way(func(t *testing.T, v plugin.Session) (plugin.Session, error) {
			head, doc := toSession(&v)
			got, err := fromSession(cross(t, head), doc)
			if err != nil {
				return v, err
			}
			return *got, nil
		}),
		way(func(t *testing.T, v plugin.StageRequest) (plugin.StageRequest, error) {
			head, doc := toStageRequest(v)
			return fromStageRequest(cross(t, head), doc)
		}),
		way(func(t *testing.T, v plugin.Stage) (plugin.Stage, error) {
			return *fromStage(cross(t, toStage(&v))), nil
		}),
		way(func(t *testing.T, v plugin.Chunk) (plugin.Chunk, error) {
			return fromChunk(cross(t, toChunk(v))), nil
		}),
		way(func(t *testing.T, v plugin.CommitRequest) (plugin.CommitRequest, error) {
			return fromCommit(cross(t, toCommit(v))), nil
		}),
		way(func(t *testing.T, v plugin.NewSessionRequest) (plugin.NewSessionRequest, error) {
			return fromNewSession(cross(t, toNewSession(v))), nil
		}),
		way(func(t *testing.T, v plugin.Error) (plugin.Error, error) {
			e := fromError(cross(t, toError(&v)))
			return *e.(*plugin.Error), nil
		}),
	}
}

func TestNoFieldIsForgotten(t *testing.T) {
	t.Parallel()
	for _, c := range crossings() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sent, got := c.run(t, func(n int) string { return fmt.Sprint("text ", n) })
			if diff := cmp.Diff(sent, got); diff != "" {
				t.Errorf("%s after crossing (-sent +got):\n%s", c.name, diff)
			}
		})
	}
}

func TestStringsThatAreNotUTF8Cross(t *testing.T) {
	t.Parallel()
	for _, c := range crossings() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, func(n int) string { return fmt.Sprint("\xff", n) })
		})
	}
}

func TestWordsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	call := plugin.Call{Argv: []string{"save", "na\xefve", ""}}
	got := fromCall(cross(t, toCall(call)))
	if diff := cmp.Diff(call, got); diff != "" {
		t.Errorf("call after crossing (-sent +got):\n%s", diff)
	}
}

func TestErrorsCross(t *testing.T) {
	t.Parallel()
	codes := []plugin.Code{"of a later version"}
	for _, info := range plugin.Codes() {
		codes = append(codes, info.Code)
	}
	for _, code := range codes {
		sent := plugin.Errorf(code, "snapshot %q: %w", "v1", errors.New("the cause")).
			WithHint("try %s", "v2").WithDetail("name", "v1")
		got := fromError(cross(t, toError(fmt.Errorf("load: %w", sent))))
		want := &plugin.Error{
			Code:    code,
			Message: "load: " + sent.Message,
			Hint:    sent.Hint,
			Details: sent.Details,
		}
		if diff := cmp.Diff(want, got.(*plugin.Error)); diff != "" {
			t.Errorf("%s after crossing (-want +got):\n%s", code, diff)
		}
	}
	if err := fromError(toError(nil)); err != nil {
		t.Errorf("no error arrived as %v", err)
	}
}
