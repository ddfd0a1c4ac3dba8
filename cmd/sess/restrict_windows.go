package main

// restrict has nothing to do: Windows has no umask, and what is made in a
// person's folders is theirs alone.
func restrict() {}
