package supervise

// Phase is where a plugin is in its life.
type Phase string

// The phases.
const (
	Stopped  Phase = "stopped"  // no process, and none wanted yet
	Starting Phase = "starting" // a process runs, and is not configured yet
	Ready    Phase = "ready"    // calls are answered
	Draining Phase = "draining" // what runs is being finished
	Backoff  Phase = "backoff"  // the next start waits
	Failed   Phase = "failed"   // given up, until somebody asks for a start
)

// maxFailures in a row make a plugin failed.
const maxFailures = 5

// machine is the life of a plugin: its phase, and how many failures there were
// since it was last well.
type machine struct {
	phase    Phase
	failures int
}

// event is something that happens to a plugin.
type event int

const (
	wanted  event = iota // a call needs it
	revive               // somebody asks for a start, also after it failed
	started              // the process is configured
	broke                // the start failed, and another one may not
	refused              // the start failed, and so will every other one
	exited               // the process is gone
	settled              // it has been ready for long enough to be well
	due                  // the pause is over
	stop                 // the host is done with it
)

// action is what follows.
type action int

const (
	launch     action = iota // start a process
	abort                    // give the start up
	drain                    // finish what runs, then end the process
	armSettled               // send settled after a while
	armDue                   // send due after the pause
	disarm                   // send neither
)

// next is the whole of a plugin's life: it changes nothing, and an event that
// means nothing in a phase leaves it as it is.
func next(m machine, e event) (machine, []action) {
	switch m.phase {
	case Stopped:
		if e == wanted || e == revive {
			return machine{Starting, 0}, []action{launch}
		}
	case Starting:
		switch e {
		case started:
			return machine{Ready, m.failures}, []action{armSettled}
		case broke:
			return failure(m)
		case refused:
			return machine{Failed, m.failures + 1}, nil
		case stop:
			return machine{Draining, m.failures}, []action{abort}
		}
	case Ready:
		switch e {
		case exited:
			return failure(m)
		case settled:
			return machine{Ready, 0}, nil
		case stop:
			return machine{Draining, m.failures}, []action{disarm, drain}
		}
	case Draining:
		switch e {
		case started: // before the start could be given up
			return m, []action{drain}
		case broke, refused, exited:
			return machine{Stopped, 0}, nil
		}
	case Backoff:
		switch e {
		case due:
			return machine{Starting, m.failures}, []action{launch}
		case revive:
			return machine{Starting, m.failures}, []action{disarm, launch}
		case stop:
			return machine{Stopped, 0}, []action{disarm}
		}
	case Failed:
		switch e {
		case revive:
			return machine{Starting, 0}, []action{launch}
		case stop:
			return machine{Stopped, 0}, nil
		}
	}
	return m, nil
}

// failure counts one: a pause follows, or the end of trying.
func failure(m machine) (machine, []action) {
	m.failures++
	if m.failures >= maxFailures {
		return machine{Failed, m.failures}, []action{disarm}
	}
	return machine{Backoff, m.failures}, []action{disarm, armDue}
}
