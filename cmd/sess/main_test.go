package main

import (
	"os"
	"testing"
)

// A Ctrl-C goes to the chat that takes it. One that comes when the chat has
// stopped receiving ends the program, and the wait for it ends nothing else.
func TestInterrupts(t *testing.T) {
	t.Parallel()
	i := &interrupts{}
	signals, passed := make(chan os.Signal), make(chan struct{})
	go func() {
		defer close(passed)
		i.pass(signals)
	}()
	turns := make(chan struct{})
	giveBack := i.take(turns)
	signals <- os.Interrupt
	<-turns
	signals <- os.Interrupt // nobody receives it
	giveBack()
	<-passed
	giveBack() // does nothing more

	passed = make(chan struct{})
	go func() {
		defer close(passed)
		i.pass(signals)
	}()
	signals <- os.Interrupt
	<-passed
}
