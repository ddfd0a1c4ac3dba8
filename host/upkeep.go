package host

import (
	"context"
	"errors"
	"time"

	"sess/store/durable"
)

// sweptName is touched by each sweep of the sessions; its time only spares a
// process the work that another one did lately.
const (
	sweptName  = "sessions/.swept"
	sweepEvery = time.Hour
)

// upkeep tidies up the home in the background, once in the life of a
// host and after its first change: what crashes and replaced states have left is
// removed. Close waits for it as long as it may.
func (h *Host) upkeep() {
	h.tidy.Do(func() {
		if info, err := h.home.Stat(sweptName); err == nil {
			if age := h.now().Sub(info.ModTime()); age >= 0 && age < sweepEvery {
				return
			}
		}
		h.background.Go(func() {
			if err := h.sweep(h.life); err != nil && h.life.Err() == nil {
				h.log.Error("what nobody needs of the sessions is not removed", "err", err)
			}
		})
	})
}

func (h *Host) sweep(ctx context.Context) error {
	if err := errors.Join(h.sessions.Sweep(ctx), durable.SweepOldTemps(h.home, describeDir, h.now())); err != nil {
		return err
	}
	return durable.Touch(h.home, sweptName)
}
