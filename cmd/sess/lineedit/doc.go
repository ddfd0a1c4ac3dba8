// Package lineedit lets a person write a line at a terminal: move in it, bring
// back and search what was written before, complete words, and paste text of
// several lines that stays one.
//
// It knows nothing of files or signals: what is typed comes from a reader, what
// is shown goes to a writer, and whoever makes an [Editor] says how the terminal
// is prepared. It is written for terminals that understand the control sequences
// of ECMA-48, as all that are in use do.
package lineedit
