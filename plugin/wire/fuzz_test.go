package wire

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"sess/plugin"
	pb "sess/plugin/wire/pluginv1"
	"sess/store/transcript"
)

// FuzzAnswers reads any bytes as each of the messages that a process at the other
// end may send. What comes of them can be used: it is shown as JSON, and crosses
// again as it is.
func FuzzAnswers(f *testing.F) {
	doc := document()
	for _, m := range []proto.Message{
		&pb.DescribeResponse{Spec: []byte(`{"command":"x","verbs":[{"name":"a"}]}`), Build: "b", Api: []string{"1"}},
		&pb.DescribeResponse{Spec: []byte("null")},
		&pb.StatusResponse{Services: []*pb.ServiceStatus{{Name: "n", Next: timestamppb.New(time.Unix(1, 0)), Last: &timestamppb.Timestamp{Seconds: 1 << 60, Nanos: -1}}}},
		&pb.StatusResponse{Services: []*pb.ServiceStatus{{Next: &timestamppb.Timestamp{Seconds: 253402300800}}, nil}},
		&pb.Result{Text: "t", Data: []byte("{"), Notices: []string{""}},
		&pb.Error{Code: "no such code", Message: "m", Details: map[string]string{"": "x"}},
		&pb.SessionHead{Revision: -1, Ref: &pb.SessionRef{Project: "../x"}},
		&pb.StageResponse{Missing: []string{"x", ""}},
		&pb.CompleteResponse{Candidates: []*pb.Candidate{{Value: "a\nb\tc"}}},
		&pb.Call{Argv: [][]byte{{}, []byte("--")}, Caller: "nobody"},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, doc.Encode())
	}
	f.Fuzz(func(t *testing.T, data, text []byte) {
		read := func(m proto.Message) bool { return proto.Unmarshal(data, m) == nil }
		shown := func(v any) {
			if _, err := json.Marshal(v); err != nil {
				t.Errorf("%+v cannot be shown: %v", v, err)
			}
		}
		if m := new(pb.DescribeResponse); read(m) {
			if d, err := fromDescription(m); err == nil {
				shown(d)
				if _, err := toDescription(d); err != nil {
					t.Errorf("%+v does not cross again: %v", d, err)
				}
			}
		}
		if m := new(pb.StatusResponse); read(m) {
			list := fromServices(m.GetServices())
			shown(list)
			if _, err := proto.Marshal(&pb.StatusResponse{Services: toServices(list)}); err != nil {
				t.Errorf("%+v does not cross again: %v", list, err)
			}
		}
		if m := new(pb.Result); read(m) {
			if r := fromResult(m); json.Valid(r.Data) {
				shown(r)
			}
		}
		if m := new(pb.Error); read(m) {
			err := fromError(m)
			if e := plugin.AsError(err); e == nil || e.Code == "" || e.Message == "" {
				t.Errorf("%+v is taken for %+v: it has no code or no message", m, e)
			}
		}
		if m := new(pb.SessionHead); read(m) {
			s, err := fromSession(m, text)
			if err != nil && !errors.Is(err, transcript.ErrDamaged) && !errors.Is(err, transcript.ErrNewer) {
				t.Errorf("a document that is none: %v", err)
			}
			if err == nil {
				s.Document.Encode()
			}
		}
		if m := new(pb.StageHead); read(m) {
			if r, err := fromStageRequest(m, text); err == nil {
				toStageRequest(r)
			}
		}
		if m := new(pb.StageResponse); read(m) {
			shown(fromStage(m).Missing)
		}
		if m := new(pb.CompleteResponse); read(m) {
			shown(fromCandidates(m.GetCandidates()))
		}
		if m := new(pb.Call); read(m) {
			shown(fromCall(m))
		}
		if m := new(pb.NotifyRequest); read(m) {
			shown(fromEvent(m))
		}
		if m := new(pb.ConfigureRequest); read(m) {
			fromConfiguration(m)
		}
	})
}
