package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/sqldb"
)

// REF-AUTH-002: 256 random bits, of which only the SHA-256 is to be stored.
func TestNewToken(t *testing.T) {
	id := sqldb.NewID()
	token, digest := NewToken(id)
	other, _ := NewToken(id)
	if token == other {
		t.Fatal("two tokens are equal")
	}
	secret, err := hex.DecodeString(token[len("orbit_")+33:])
	if err != nil || len(secret) != 32 {
		t.Fatalf("secret of %d bytes, %v; want 32", len(secret), err)
	}
	if sha256.Sum256(secret) != digest {
		t.Error("digest is not the SHA-256 of the secret")
	}
	credential, parsed, ok := parseToken(token)
	if !ok || credential != id || parsed.digest() != digest {
		t.Error("the token does not read back")
	}
}

func TestMalformedTokens(t *testing.T) {
	good, _ := NewToken(sqldb.NewID())
	for _, bad := range []string{
		"", "orbit_", good[1:], good + "0", good[:len(good)-1], strings.ToUpper(good), strings.Replace(good, "_", "-", 1),
		good[:38] + good[39:], good[:39] + strings.Repeat("g", 64), good[:6] + strings.Repeat("z", 32) + good[38:],
		strings.Replace(good, "_", "__", 1), good[:39] + strings.Repeat("A", 64),
	} {
		if _, _, ok := parseToken(bad); ok {
			t.Errorf("token %q was read", bad)
		}
	}
}

// API-026, API-034.
func TestBearer(t *testing.T) {
	for _, c := range []struct {
		values []string
		token  string
	}{
		{nil, ""}, {[]string{""}, ""}, {[]string{"Basic x"}, ""}, {[]string{"Bearerx"}, ""}, {[]string{"Bearer x", "Bearer x"}, ""},
		{[]string{"Bearer x"}, "x"}, {[]string{"bEaReR   x"}, "x"},
	} {
		token, err := bearer(http.Header{"Authorization": c.values})
		if token != c.token || (err == nil) != (c.token != "") {
			t.Errorf("%q: token %q, %v; want %q", c.values, token, err, c.token)
		}
	}
}

func TestPermissions(t *testing.T) {
	p, err := NewPermissions([]string{"tasks:submit", "tasks:read", "tasks:submit"})
	if err != nil || !slices.Equal(p, []string{"tasks:read", "tasks:submit"}) {
		t.Errorf("permissions %v, %v", p, err)
	}
	for _, bad := range [][]string{nil, {"tasks:write"}, {"tasks:read,tasks:submit"}, {""}} {
		if _, err := NewPermissions(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	back := parseColumn(p.Column())
	if !back.Has(TasksRead) || back.Has(TasksCancel) || parseColumn(nil).Has("") {
		t.Errorf("read back %v", back)
	}
	if len(Permissions(KnownPermissions()).Column()) > 512 {
		t.Error("all permissions together do not fit their column")
	}
}
