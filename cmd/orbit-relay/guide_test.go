package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/internal/drivers"
	"github.com/orbitkit/orbit/outbox"
)

// guideSQL returns the statements of the guide that begin so.
func guideSQL(t *testing.T, begin string) []string {
	t.Helper()
	guide, err := os.ReadFile("../../docs/outbox-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(begin+` [^;"]*`).FindAllString(string(guide), -1)
	if len(found) == 0 {
		t.Fatalf("the guide has no %s", begin)
	}
	return found
}

// OUT-008, CLI-017: the rights that the guide gives are enough for the relay and its
// operators, and with those on columns the database keeps frozen what is frozen.
func TestTheRightsOfTheGuideAreEnough(t *testing.T) {
	for _, engine := range []string{dbtest.MySQL, dbtest.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, engine)
			_, blocked, unknown, delivered := s.settled()
			grants := guideSQL(t, "GRANT")
			address, run := s.user(grants[:len(grants)-1])
			env := s.env()
			env[envDatabase], env["USER"] = address, "anna"
			do := func(args ...string) {
				t.Helper()
				if code, out, text := call(t.Context(), env, args...); code != 0 {
					t.Errorf("%v = %d %q %q", args, code, out, text)
				}
			}
			for round, seq := range []int64{blocked, unknown} {
				if round == 1 { // once more with rights on columns
					run(guideSQL(t, "REVOKE")[0])
					run(grants[len(grants)-1])
				}
				if _, out, _ := call(t.Context(), env, "doctor"); !strings.Contains(out, "every statement is allowed") {
					t.Errorf("round %d: doctor = %q", round, out)
				}
				do("requeue", fmt.Sprint(seq), "--reason", "x")
				do("hold", "--all", "--reason", "x")
				do("release", "--all", "--reason", "x")
				do("once", "--target", "shop")
				do("status")
				if r := s.row(seq); r.State != outbox.Delivered {
					t.Errorf("round %d: row %d is %v", round, seq, r.State)
				}
			}
			if _, err := s.db.Write().ExecContext(t.Context(), "UPDATE orbit_outbox SET settled_at = 1 WHERE seq = ?", delivered); err != nil {
				t.Fatal(err)
			}
			do("purge", "--older-than", "1d", "--reason", "x")
			do("verify")
			user, err := drivers.OpenExisting(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			defer user.Close()
			for _, column := range []string{"request", "idempotency_key", "target", "content_digest", "request_sha256"} {
				if _, err := user.Write().ExecContext(t.Context(), "UPDATE orbit_outbox SET "+column+" = "+column); !isDenied(err) {
					t.Errorf("the relay's user may change %s: %v", column, err)
				}
			}
		})
	}
}

// The restore drill's statement makes rows that are sent again under the same key, and an
// outbox without a fault.
func TestTheRestoreDrillSendsAgainUnderTheSameKey(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, engine)
			seqs := s.enqueue("before", "after")
			if code, out, text := call(t.Context(), s.env(), "once", "--target", "shop"); code != 0 {
				t.Fatalf("once = %d %q %q", code, out, text)
			}
			cut := s.row(seqs[1]).AcceptedAt.UnixMicro()
			if _, err := s.db.Write().ExecContext(t.Context(), "UPDATE orbit_outbox SET accepted_at = ? WHERE seq = ?", cut-1, seqs[0]); err != nil {
				t.Fatal(err)
			}
			var update string
			for _, statement := range guideSQL(t, "UPDATE") {
				if strings.HasPrefix(statement, "UPDATE orbit_outbox\n") {
					update = strings.ReplaceAll(statement, "@cut", fmt.Sprint(cut))
				}
			}
			result, err := s.db.Write().ExecContext(t.Context(), update)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := result.RowsAffected(); n != 1 || err != nil {
				t.Fatalf("the drill changed %d rows, %v; want the one after the backup", n, err)
			}
			if out, text := s.operate(0, "verify"); !strings.Contains(out, "0 faults") {
				t.Errorf("verify = %q %q", out, text)
			}
			if code, out, _ := call(t.Context(), s.env(), "once", "--target", "shop"); code != 0 || !strings.Contains(out, "accepted 1 (1 of them known") {
				t.Errorf("once after the drill = %d %q", code, out)
			}
			if r := s.row(seqs[1]); r.State != outbox.Delivered || !r.Deduplicated || time.Since(r.AcceptedAt) > time.Hour || s.tasks() != 2 {
				t.Errorf("row is %+v, and there are %d tasks", r, s.tasks())
			}
		})
	}
}

// OUT-020: what is not promised is said, with the remedy.
func TestTheGuidePromisesNoOrder(t *testing.T) {
	guide, err := os.ReadFile("../../docs/outbox-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"What is not: an order.", "share a `ConcurrencyKey`"} {
		if !strings.Contains(string(guide), word) {
			t.Errorf("the guide lacks %q", word)
		}
	}
}
