//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"os"
	"path/filepath"
	"syscall"
)

// lockFolder marks a folder as served by this process, until unlock or its end, and reports
// whether it is alone with it. Two may share a folder: the mark is for a warning only, so one
// that cannot be made counts as alone.
func lockFolder(folder string) (unlock func(), alone bool) {
	f, err := os.OpenFile(filepath.Join(folder, "dev.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return func() {}, true
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	return func() { f.Close() }, err != syscall.EWOULDBLOCK
}
