// Package version says which build of Orbit runs.
package version

import (
	"runtime/debug"
)

// version is set by the Makefile: -ldflags "-X github.com/orbitkit/orbit/internal/version.version=v1.2.3".
var version string

// String returns the release of the running program, such as v1.2.3. A build from a
// checkout without a release is "devel", with the commit if the build recorded one.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return choose(version, info)
}

func choose(stamped string, info *debug.BuildInfo) string {
	if stamped != "" {
		return stamped
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && s.Value != "" {
			return "devel-" + s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}
