package wire

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"sess/plugin"
	pb "sess/plugin/wire/pluginv1"
	"sess/store/transcript"
)

func toDescription(d plugin.Description) (*pb.DescribeResponse, error) {
	spec, err := json.Marshal(d.Spec)
	if err != nil {
		return nil, plugin.Errorf(plugin.Internal, "encode the plugin's spec: %w", err)
	}
	return &pb.DescribeResponse{
		Spec:      spec,
		Build:     valid(d.Build),
		Api:       validAll(d.API),
		Abilities: validAll(d.Abilities),
	}, nil
}

func fromDescription(r *pb.DescribeResponse) (plugin.Description, error) {
	d := plugin.Description{Build: r.GetBuild(), API: r.GetApi(), Abilities: r.GetAbilities()}
	if err := json.Unmarshal(r.GetSpec(), &d.Spec); err != nil {
		return plugin.Description{}, plugin.Errorf(plugin.Internal, "the plugin's spec does not parse: %w", err)
	}
	return d, nil
}

func toConfiguration(c plugin.Configuration, runtime uint32) *pb.ConfigureRequest {
	return &pb.ConfigureRequest{
		Config:     c.Config,
		AgentsDir:  valid(c.AgentsDir),
		UserHome:   valid(c.UserHome),
		Background: c.Background,
		RuntimeId:  runtime,
	}
}

func fromConfiguration(r *pb.ConfigureRequest) plugin.Configuration {
	return plugin.Configuration{
		Config:     raw(r.GetConfig()),
		AgentsDir:  r.GetAgentsDir(),
		UserHome:   r.GetUserHome(),
		Background: r.GetBackground(),
	}
}

// toCall leaves the input out; it crosses beside.
func toCall(c plugin.Call) *pb.Call {
	argv := make([][]byte, len(c.Argv))
	for i, word := range c.Argv {
		argv[i] = []byte(word)
	}
	return &pb.Call{
		Argv:      argv,
		Agent:     valid(c.Agent),
		Project:   valid(c.Project),
		Session:   valid(c.Session),
		Turn:      valid(c.Turn),
		Caller:    valid(string(c.Caller)),
		Cwd:       valid(c.Cwd),
		RequestId: valid(c.RequestID),
		HasInput:  c.Input != nil,
		HasOutput: c.Output != nil,
		Foreign:   valid(c.Foreign),
	}
}

// fromCall leaves out input and output, which are streams of the call.
func fromCall(c *pb.Call) plugin.Call {
	var argv []string
	for _, word := range c.GetArgv() {
		argv = append(argv, string(word))
	}
	return plugin.Call{
		Argv:      argv,
		Agent:     c.GetAgent(),
		Project:   c.GetProject(),
		Session:   c.GetSession(),
		Turn:      c.GetTurn(),
		Caller:    plugin.Caller(c.GetCaller()),
		Cwd:       c.GetCwd(),
		RequestID: c.GetRequestId(),
		Foreign:   c.GetForeign(),
	}
}

func toResult(r plugin.Result) *pb.Result {
	m := &pb.Result{Text: valid(r.Text), Data: r.Data, Notices: validAll(r.Notices)}
	if r.Page != nil {
		m.Page = &pb.Page{Total: r.Page.Total, Next: valid(r.Page.Next)}
	}
	return m
}

func fromResult(r *pb.Result) plugin.Result {
	out := plugin.Result{Text: r.GetText(), Data: raw(r.GetData()), Notices: r.GetNotices()}
	if p := r.GetPage(); p != nil {
		out.Page = &plugin.Page{Total: p.GetTotal(), Next: p.GetNext()}
	}
	return out
}

func toProgress(p plugin.Progress) *pb.Progress {
	return &pb.Progress{Stage: valid(p.Stage), Done: p.Done, Total: p.Total, Unit: valid(p.Unit)}
}

func fromProgress(p *pb.Progress) plugin.Progress {
	return plugin.Progress{Stage: p.GetStage(), Done: p.GetDone(), Total: p.GetTotal(), Unit: p.GetUnit()}
}

func toEvent(e plugin.Event) *pb.NotifyRequest {
	return &pb.NotifyRequest{
		Kind:     valid(string(e.Kind)),
		Agent:    valid(e.Agent),
		Project:  valid(e.Project),
		Session:  valid(e.Session),
		Turn:     valid(e.Turn),
		Revision: e.Revision,
		Plugin:   valid(e.Plugin),
		Model:    valid(e.Model),
	}
}

func fromEvent(r *pb.NotifyRequest) plugin.Event {
	return plugin.Event{
		Kind:     plugin.EventKind(r.GetKind()),
		Agent:    r.GetAgent(),
		Project:  r.GetProject(),
		Session:  r.GetSession(),
		Turn:     r.GetTurn(),
		Revision: r.GetRevision(),
		Plugin:   r.GetPlugin(),
		Model:    r.GetModel(),
	}
}

func toComplete(r plugin.CompleteRequest) *pb.CompleteRequest {
	return &pb.CompleteRequest{Call: toCall(r.Call), Kind: valid(r.Kind)}
}

func fromComplete(r *pb.CompleteRequest) plugin.CompleteRequest {
	return plugin.CompleteRequest{Call: fromCall(r.GetCall()), Kind: r.GetKind()}
}

func toCandidates(list []plugin.Candidate) []*pb.Candidate {
	return convert(list, func(c plugin.Candidate) *pb.Candidate {
		return &pb.Candidate{Value: valid(c.Value), Help: valid(c.Help)}
	})
}

func fromCandidates(list []*pb.Candidate) []plugin.Candidate {
	return convert(list, func(c *pb.Candidate) plugin.Candidate {
		return plugin.Candidate{Value: c.GetValue(), Help: c.GetHelp()}
	})
}

func toServices(list []plugin.ServiceStatus) []*pb.ServiceStatus {
	return convert(list, func(s plugin.ServiceStatus) *pb.ServiceStatus {
		return &pb.ServiceStatus{
			Name:     valid(s.Name),
			Schedule: valid(s.Schedule),
			Next:     toTime(s.Next),
			Last:     toTime(s.Last),
			Result:   valid(s.Result),
			Running:  s.Running,
		}
	})
}

func fromServices(list []*pb.ServiceStatus) []plugin.ServiceStatus {
	return convert(list, func(s *pb.ServiceStatus) plugin.ServiceStatus {
		return plugin.ServiceStatus{
			Name:     s.GetName(),
			Schedule: s.GetSchedule(),
			Next:     fromTime(s.GetNext()),
			Last:     fromTime(s.GetLast()),
			Result:   s.GetResult(),
			Running:  s.GetRunning(),
		}
	})
}

func toRef(r plugin.SessionRef) *pb.SessionRef {
	return &pb.SessionRef{Project: valid(r.Project), Id: valid(r.ID)}
}

func fromRef(r *pb.SessionRef) plugin.SessionRef {
	return plugin.SessionRef{Project: r.GetProject(), ID: r.GetId()}
}

// toSession splits a session into its head and its encoded document.
func toSession(s *plugin.Session) (*pb.SessionHead, []byte) {
	return &pb.SessionHead{
		Ref:      toRef(s.Ref),
		Revision: s.Revision,
		Status:   valid(s.Status),
		Running:  s.Running,
		Selected: valid(s.Selected),
	}, s.Document.Encode()
}

func fromSession(h *pb.SessionHead, document []byte) (*plugin.Session, error) {
	doc, err := transcript.Decode(document)
	if err != nil {
		return nil, err
	}
	return &plugin.Session{
		Ref:      fromRef(h.GetRef()),
		Revision: h.GetRevision(),
		Document: *doc,
		Status:   h.GetStatus(),
		Running:  h.GetRunning(),
		Selected: h.GetSelected(),
	}, nil
}

// toStageRequest splits a proposal into its head and its encoded document.
func toStageRequest(r plugin.StageRequest) (*pb.StageHead, []byte) {
	head := &pb.StageHead{Session: toRef(r.Session), Restore: r.Restore, Fresh: r.Fresh}
	return head, r.Document.Encode()
}

func fromStageRequest(h *pb.StageHead, document []byte) (plugin.StageRequest, error) {
	doc, err := transcript.Decode(document)
	if err != nil {
		return plugin.StageRequest{}, err
	}
	return plugin.StageRequest{
		Session:  fromRef(h.GetSession()),
		Document: *doc,
		Restore:  h.GetRestore(),
		Fresh:    h.GetFresh(),
	}, nil
}

func toStage(s *plugin.Stage) *pb.StageResponse {
	return &pb.StageResponse{
		Id:       valid(s.ID),
		Missing:  toIDs(s.Missing),
		Revision: s.Revision,
		Differs:  s.Differs,
		Ref:      toRef(s.Ref),
	}
}

func fromStage(r *pb.StageResponse) *plugin.Stage {
	return &plugin.Stage{
		ID:       r.GetId(),
		Missing:  fromIDs(r.GetMissing()),
		Revision: r.GetRevision(),
		Differs:  r.GetDiffers(),
		Ref:      fromRef(r.GetRef()),
	}
}

func toChunk(c plugin.Chunk) *pb.Chunk {
	return &pb.Chunk{Id: valid(string(c.ID)), Frame: c.Frame}
}

func fromChunk(c *pb.Chunk) plugin.Chunk {
	return plugin.Chunk{ID: transcript.ID(c.GetId()), Frame: c.GetFrame()}
}

func toCommit(r plugin.CommitRequest) *pb.CommitRequest {
	return &pb.CommitRequest{Stage: valid(r.Stage), Revision: r.Revision, Op: valid(r.Op), Note: valid(r.Note)}
}

func fromCommit(r *pb.CommitRequest) plugin.CommitRequest {
	return plugin.CommitRequest{Stage: r.GetStage(), Revision: r.GetRevision(), Op: r.GetOp(), Note: r.GetNote()}
}

func toNewSession(r plugin.NewSessionRequest) *pb.NewSessionRequest {
	return &pb.NewSessionRequest{
		Project: valid(r.Project),
		Title:   valid(r.Title),
		Stage:   valid(r.Stage),
		Op:      valid(r.Op),
		Id:      valid(r.ID),
	}
}

func fromNewSession(r *pb.NewSessionRequest) plugin.NewSessionRequest {
	return plugin.NewSessionRequest{
		Project: r.GetProject(),
		Title:   r.GetTitle(),
		Stage:   r.GetStage(),
		Op:      r.GetOp(),
		ID:      r.GetId(),
	}
}

func toIDs(ids []transcript.ID) []string {
	return convert(ids, func(id transcript.ID) string { return valid(string(id)) })
}

func fromIDs(ids []string) []transcript.ID {
	return convert(ids, func(id string) transcript.ID { return transcript.ID(id) })
}

// toTime keeps the zero time as an absent one.
func toTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// fromTime takes a time that no clock shows, which JSON cannot say, as none.
func fromTime(t *timestamppb.Timestamp) time.Time {
	if t.CheckValid() != nil { // also nil
		return time.Time{}
	}
	return t.AsTime()
}

// raw is data as JSON, nil when there is none.
func raw(data []byte) json.RawMessage {
	if len(data) == 0 {
		return nil
	}
	return data
}

func validAll(list []string) []string { return convert(list, valid) }

// convert maps a list; an empty one becomes nil.
func convert[A, B any](list []A, f func(A) B) []B {
	if len(list) == 0 {
		return nil
	}
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}
