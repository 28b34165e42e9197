package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/sqldb"
	"github.com/orbitkit/orbit/server/internal/admin"
)

// ERR-002, REF-AUTH-001, IDEM-004: expiry, revocation and the state of application and
// namespace count from the next request on, also for one that would be a repeat.
func TestCredentialsEndAtOnce(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		post := func() answer {
			return n.do(ask{method: "POST", path: "/v1/tasks", key: "key", body: n.body()})
		}
		post().want(t, 201, "")
		id := parseID(t, n.creds.Token[6:38])
		steps := []struct {
			name, spoil, mend string
			target            any
			reason            string
		}{
			{"expired", `UPDATE credential SET expires_at = 1 WHERE id = ?`, `UPDATE credential SET expires_at = NULL WHERE id = ?`, id, "expired"},
			{"application disabled", `UPDATE application SET state = 2 WHERE id = ?`, `UPDATE application SET state = 1 WHERE id = ?`, parseID(t, n.creds.ApplicationID), "disabled"},
			{"namespace disabled", `UPDATE namespace SET state = 2 WHERE id = ?`, `UPDATE namespace SET state = 1 WHERE id = ?`, parseID(t, n.creds.NamespaceID), "disabled"},
			{"revoked", `UPDATE credential SET revoked_at = 1 WHERE id = ?`, `UPDATE credential SET revoked_at = NULL WHERE id = ?`, id, "revoked"},
		}
		for _, s := range steps {
			n.exec(s.spoil, s.target)
			if got := post().want(t, 401, orbit.CodeUnauthenticated); !strings.Contains(got.message, s.reason) {
				t.Errorf("%s: message %q", s.name, got.message)
			}
			// Who has not the secret is not told.
			forged := n.creds.Token[:len(n.creds.Token)-1] + "0"
			if forged == n.creds.Token {
				forged = n.creds.Token[:len(n.creds.Token)-1] + "1"
			}
			if got := n.do(ask{path: "/v1/capabilities", token: forged}).want(t, 401, orbit.CodeUnauthenticated); !strings.Contains(got.message, "not known") {
				t.Errorf("%s: a forged token is told %q", s.name, got.message)
			}
			n.exec(s.mend, s.target)
			post().want(t, 200, "")
		}
		if err := admin.NewOperator(n.db.DB, "test").Revoke(t.Context(), id, ""); err != nil {
			t.Fatal(err)
		}
		post().want(t, 401, orbit.CodeUnauthenticated)
	})
}

// A credential that expires in the future works until then, by the database's clock.
func TestCredentialExpiry(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		c, err := admin.CredentialRequest{Application: "app", Namespace: "default", Permissions: []string{"tasks:read"}, ExpiresIn: time.Hour, Actor: "test"}.
			Run(t.Context(), n.db.DB)
		if err != nil {
			t.Fatal(err)
		}
		n.do(ask{path: "/v1/capabilities", token: c.Token}).want(t, 200, "")
		n.exec(`UPDATE credential SET expires_at = ? WHERE id = ?`, n.now(), parseID(t, c.Token[6:38]))
		n.do(ask{path: "/v1/capabilities", token: c.Token}).want(t, 401, orbit.CodeUnauthenticated)
	})
}

// REF-AUTH-002: nothing that the database holds opens the door.
func TestTheDatabaseHoldsNoToken(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		var digest []byte
		if err := n.db.Write().QueryRowContext(t.Context(), `SELECT secret_digest FROM credential`).Scan(&digest); err != nil {
			t.Fatal(err)
		}
		secret := n.creds.Token[len(n.creds.Token)-64:]
		if strings.Contains(string(digest), secret) || len(digest) != 32 {
			t.Error("the secret is stored")
		}
		stolen := n.creds.Token[:len(n.creds.Token)-64] + sqldb.ID(digest[:16]).String() + sqldb.ID(digest[16:]).String()
		n.do(ask{path: "/v1/capabilities", token: stolen}).want(t, 401, orbit.CodeUnauthenticated)
	})
}

// API-027: who fails too often from one address is held back; who does not fail is not.
func TestTooManyFailuresAreHeldBack(t *testing.T) {
	n := onSQLite(t)
	for range 20 {
		if got := n.do(ask{path: "/v1/capabilities", token: "wrong"}).want(t, 401, orbit.CodeUnauthenticated); got.header.Get("Retry-After") != "" {
			t.Fatal("held back within the burst")
		}
	}
	if got := n.do(ask{path: "/v1/capabilities", token: "wrong"}).want(t, 401, orbit.CodeUnauthenticated); got.header.Get("Retry-After") != "1" { // AMB-058
		t.Errorf("Retry-After %q after 21 failures, want 1", got.header.Get("Retry-After"))
	}
	if got := n.do(ask{path: "/v1/capabilities"}).want(t, 200, ""); got.header.Get("Retry-After") != "" {
		t.Error("a good credential is held back")
	}
}
