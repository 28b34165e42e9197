//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

// lockFolder cannot tell here whether another process serves the folder.
func lockFolder(string) (unlock func(), alone bool) { return func() {}, true }
