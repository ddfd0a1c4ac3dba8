package snapshot

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// What is done when snapshots that people named exceed the cap.
const (
	OnCapWarn   = "warn"   // nothing; the caller warns
	OnCapRefuse = "refuse" // nothing; the caller refuses the save
	OnCapEvict  = "evict"  // the oldest named ones go to the trash
)

// Policy says what is to be kept. The zero value keeps everything.
type Policy struct {
	// Max is the cap on the number of snapshots; 0 means none.
	Max int
	// OnCap is OnCapWarn (also when empty), OnCapRefuse or OnCapEvict.
	OnCap string
	// OlderThan drops auto-managed snapshots older than this; 0 means off.
	OlderThan time.Duration
	// Keep drops auto-managed snapshots that are not among the newest Keep; 0
	// means off.
	Keep int
	// Protect returns why a snapshot must stay, or "". It may be nil.
	Protect func(Entry) string
	// Exempt are ids of snapshots that the running operation made.
	Exempt []string
}

// Decision is what a plan says about a snapshot.
type Decision struct {
	Entry  Entry
	Reason string // "auto-managed, oldest above maxSnapshots 50"
}

// Plan decides which snapshots stay and which go, each with its reason: keep
// with the newest first, drop in the order in which they go. It is pure.
//
// OlderThan and Keep apply to auto-managed snapshots only, each on its own. Above
// Max auto-managed ones go, oldest first. Pinned, protected and exempt ones never
// go, and named ones only under OnCapEvict when they alone exceed Max. Damaged
// ones and those of a newer version stay and do not count. What is dated in the
// future has no age, but ranks as the oldest, so that a wrong date neither hides
// a snapshot from the cap nor pushes others out.
func Plan(entries []Entry, policy Policy, now time.Time) (keep, drop []Decision) {
	future := func(e Entry) bool { return e.Meta.UpdatedAt.After(now) }
	rank := func(a, b Entry) int { // the one to go first
		fa, fb := future(a), future(b)
		if fa != fb {
			if fa {
				return -1
			}
			return 1
		}
		return newestFirst(b, a)
	}
	var autos, named []Entry // that may go, the first to go first
	var allAutos []Entry     // also those that may not
	total, namedTotal := 0, 0
	stay := func(e Entry, reason string) { keep = append(keep, Decision{e, reason}) }
	for _, e := range entries {
		if e.State == StateDamaged || e.State == StateNewer {
			stay(e, string(e.State)+", never pruned")
			continue
		}
		total++
		if e.Name.Auto() {
			allAutos = append(allAutos, e)
		} else {
			namedTotal++
		}
		switch reason := policy.protected(e); {
		case reason != "":
			stay(e, reason)
		case e.Name.Auto():
			autos = append(autos, e)
		default:
			named = append(named, e)
		}
	}
	slices.SortFunc(autos, rank)
	slices.SortFunc(named, rank)
	slices.SortFunc(allAutos, rank)
	beyond := map[Name]bool{}
	for _, e := range allAutos[:max(0, len(allAutos)-max(0, policy.Keep))] {
		beyond[e.Name] = policy.Keep > 0
	}

	autos = slices.DeleteFunc(autos, func(e Entry) bool {
		switch {
		case policy.OlderThan > 0 && now.Sub(e.Meta.UpdatedAt) > policy.OlderThan:
			drop = append(drop, Decision{e, "auto-managed, older than " + days(policy.OlderThan)})
		case beyond[e.Name]:
			drop = append(drop, Decision{e, fmt.Sprintf("auto-managed, beyond the newest %d", policy.Keep)})
		default:
			return false
		}
		total--
		return true
	})
	if policy.Max > 0 {
		for total > policy.Max && len(autos) > 0 {
			why := "oldest"
			if future(autos[0]) {
				why = "dated in the future,"
			}
			drop = append(drop, Decision{autos[0], fmt.Sprintf("auto-managed, %s above maxSnapshots %d", why, policy.Max)})
			autos, total = autos[1:], total-1
		}
		for policy.OnCap == OnCapEvict && namedTotal > policy.Max && len(named) > 0 {
			drop = append(drop, Decision{named[0], fmt.Sprintf("named, oldest above maxSnapshots %d", policy.Max)})
			named, namedTotal = named[1:], namedTotal-1
		}
	}
	for _, e := range named {
		stay(e, "named")
	}
	for _, e := range autos {
		stay(e, "auto-managed, within the limits")
	}
	slices.SortFunc(keep, func(a, b Decision) int { return newestFirst(a.Entry, b.Entry) })
	return keep, drop
}

// protected says why a snapshot must stay, or "".
func (p *Policy) protected(e Entry) string {
	if e.Meta.Pinned {
		return "pinned"
	}
	if e.Meta.ID != "" && slices.Contains(p.Exempt, e.Meta.ID) {
		return "made by this operation"
	}
	if p.Protect != nil {
		return p.Protect(e)
	}
	return ""
}

// days writes a duration in days where it is a whole number of them.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return cmp.Or(d.String(), "0s")
}
