package version

import (
	"runtime/debug"
	"testing"
)

func TestTheStampWinsOverTheModuleVersionAndTheCommit(t *testing.T) {
	commit := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef0123"}}
	tests := []struct {
		name    string
		stamped string
		info    debug.BuildInfo
		want    string
	}{
		{"stamped", "v1.2.3", debug.BuildInfo{Main: debug.Module{Version: "v9.9.9"}}, "v1.2.3"},
		{"installed by go install", "", debug.BuildInfo{Main: debug.Module{Version: "v1.4.0"}, Settings: commit}, "v1.4.0"},
		{"built from a checkout", "", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: commit}, "devel-0123456789ab"},
		{"nothing recorded", "", debug.BuildInfo{}, "devel"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := choose(test.stamped, &test.info); got != test.want {
				t.Errorf("version = %q, want %q", got, test.want)
			}
		})
	}
}

func TestStringIsNeverEmpty(t *testing.T) {
	if String() == "" {
		t.Error("String() is empty")
	}
}
