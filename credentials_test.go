package orbit

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func someCredentials() Credentials {
	return Credentials{URL: "http://127.0.0.1:8080", Token: testToken, ApplicationID: strings.Repeat("7", 32),
		NamespaceID: strings.Repeat("3", 32), QueueID: strings.Repeat("1", 32), Permissions: []string{"tasks:submit", "tasks:read"}, Environment: "test"}
}

// REF-AUTH-003, CLI-016.
func TestCredentialsFileIsPrivateAndReadsBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orbit.json")
	want := someCredentials()
	if err := SaveCredentials(path, want); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if got, err := LoadCredentials(path); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("LoadCredentials = %#v, %v", got, err)
	}
	if err := SaveCredentials(path, want); !errors.Is(err, os.ErrExist) || strings.Count(err.Error(), path) != 1 {
		t.Errorf("second SaveCredentials = %v, want ErrExist", err)
	}
}

func TestBadCredentialsFilesAreNamedWithoutTheToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orbit.json")
	if err := SaveCredentials(path, someCredentials()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	tests := map[string]string{
		"token":             strings.Replace(good, `"`+testToken+`"`, `""`, 1),
		"token ":            strings.Replace(good, `"`+testToken+`"`, `["`+testToken+`"]`, 1),
		"Token":             strings.Replace(good, `"token"`, `"Token"`, 1),
		"application_id":    strings.Replace(good, strings.Repeat("7", 32), "7", 1),
		"namespace_id":      strings.Replace(good, strings.Repeat("3", 32), "", 1),
		"queue_id":          strings.Replace(good, strings.Repeat("1", 32), strings.Repeat("A", 32), 1),
		"permissions":       strings.Replace(good, `"permissions": [`, `"permissions": null, "x": [`, 1),
		"environment":       strings.Replace(good, `"test"`, `7`, 1),
		"document":          good + good,
		"document ":         "",
		"url":               strings.Replace(good, `"environment": "test"`, `"url": "x"`, 1),
		"must be a regular": strings.Repeat(" ", 65<<10) + good,
	}
	for want, text := range tests {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadCredentials(path)
		if err == nil || !strings.Contains(err.Error(), path+": "+strings.TrimSpace(want)) || strings.Contains(err.Error(), testToken) {
			t.Errorf("%s: error %v", want, err)
		}
	}
	missing := path + ".missing"
	if _, err := LoadCredentials(missing); !errors.Is(err, os.ErrNotExist) || strings.Count(err.Error(), missing) != 1 {
		t.Errorf("missing file = %v", err)
	}
	if _, err := LoadCredentials(t.TempDir()); err == nil {
		t.Error("a folder was read")
	}
}
