package main

import (
	"os"
	"slices"
	"testing"

	"sess/plugin"
)

// The words that are known without the declarations are those that are declared.
func TestOwnWords(t *testing.T) {
	t.Parallel()
	a := &app{}
	if err := a.declare(); err != nil {
		t.Fatal(err)
	}
	words := a.ownWords()
	for _, word := range words {
		if !ownWord(word) {
			t.Errorf("ownWord(%q) is false", word)
		}
	}
	for _, word := range append([]string{"chat", "completion", "config", "demo", "doctor", "gateway", "mcp", "up", "version"}, "save", "list", "sessions", "") {
		if ownWord(word) != slices.Contains(words, word) {
			t.Errorf("ownWord(%q) is %t", word, ownWord(word))
		}
	}
}

// What works here only, takes no address of a gateway elsewhere.
func TestFlagsOfARemoteGateway(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--url=http://x", "chat"}, {"--url=http://x", "gateway", "start"}, {"gateway", "token", "--url=http://x"}, {"--token=x", "list"}, {"--token-file=x", "gateway", "status"},
	} {
		a := &app{args: args, environ: []string{"SESS_HOME=" + t.TempDir()}}
		if e := plugin.AsError(a.command(t.Context()).Err); e == nil || e.Code != plugin.Usage || e.Hint == "" {
			t.Errorf("%q: %v, want it refused", args, e)
		}
	}
}

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
