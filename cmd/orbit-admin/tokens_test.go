package main

import (
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/server"
)

func TestTokensAreRaised(t *testing.T) { // TOK-018
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		client := w.serve()
		submit := func(key string) {
			t.Helper()
			_, err := client.SubmitTask(t.Context(), "submit-"+key, orbit.SubmitTaskRequest{
				QueueID: w.creds.QueueID, Handler: "h", HandlerVersion: "v1", PayloadVersion: "v1", Payload: []byte(`{}`), ConcurrencyKey: key,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		submit("a")
		if out := w.must("tokens raise --min 500 --dry-run"); out != "would raise 1 of 1 keys to 500; new keys begin above 500 (before: 0)\n" {
			t.Errorf("dry run = %q", out)
		}
		w.refuse(2, "reason", "tokens raise --min 500")
		if out := w.must("tokens", "raise", "--min", "500", "--reason", "restored to Tuesday"); out != "raised 1 of 1 keys to 500; new keys begin above 500 (before: 0)\n" {
			t.Errorf("raise = %q", out)
		}
		submit("b") // made by a node that runs
		var keys page[server.KeyView]
		w.read(&keys, "keys list --application a --namespace n --prefix b")
		if len(keys.Items) != 1 || keys.Items[0].LastToken != 500 {
			t.Errorf("a new key begins at %+v, want 500", keys.Items)
		}
		var done server.TokensRaised
		w.read(&done, "tokens raise --by 10 --application a --namespace n --reason r")
		if want := (server.TokensRaised{Min: 510, FloorBefore: 500, FloorAfter: 510, Keys: 2, Raised: 2}); done != want {
			t.Errorf("raise = %+v, want %+v", done, want)
		}
		w.read(&keys, "keys list --application a --namespace n")
		for _, k := range keys.Items {
			if k.LastToken != 510 {
				t.Errorf("key = %+v, want a last token of 510", k)
			}
		}
		if out := w.must("audit list --action tokens.raise"); strings.Count(out, "finished") != 2 || !strings.Contains(out, "restored to Tuesday") || !strings.Contains(out, "floor 500 -> 510") {
			t.Errorf("audit = %s", out)
		}
		w.refuse(2, "--min or --by", "tokens raise --reason r")
		w.refuse(2, "--min or --by", "tokens raise --reason r --min 1 --by 1")
		w.refuse(2, "at least 1", "tokens raise --reason r --min 0")
		w.refuse(2, "at most 18446744073709551613", "tokens raise --reason r --min 18446744073709551614")
		w.refuse(2, "must be a whole number from 0 to", "tokens raise --reason r --min -1")
		w.refuse(2, "namespace", "tokens raise --reason r --min 1 --application a")
		w.refuse(2, "does not exist", "tokens raise --reason r --min 1 --application a --namespace none")
		w.refuse(2, "raise", "tokens")
	}, migrations.Server)
}

func TestVerifyTellsContradictions(t *testing.T) { // LIC-018
	dbtest.Run(t, func(t *testing.T, db *dbtest.DB) {
		w := newWorld(t, db)
		client := w.serve()
		accepted, err := client.SubmitTask(t.Context(), "key", orbit.SubmitTaskRequest{
			QueueID: w.creds.QueueID, Handler: "h", HandlerVersion: "v1", PayloadVersion: "v1", Payload: []byte(`{}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		if out := w.must("verify"); out != "tasks, attempts, permits and events agree\n" {
			t.Errorf("verify = %q", out)
		}
		var found verified
		w.read(&found, "verify")
		if found.Violations == nil || len(found.Violations) != 0 {
			t.Errorf("verify = %+v, want an empty list", found)
		}
		if _, err := db.Write().ExecContext(t.Context(), "UPDATE task SET attempt_count = 3"); err != nil {
			t.Fatal(err)
		}
		code, out, errs := w.run("verify")
		if code != 1 || out != "attempts of a task are not counted right: "+accepted.Task.ID+"\n" || !strings.Contains(errs, "contradictions found: 1") {
			t.Errorf("verify = exit %d, %q, %q", code, out, errs)
		}
		if code, out, _ = w.run("verify --json"); code != 1 || !strings.Contains(out, accepted.Task.ID) {
			t.Errorf("verify --json = exit %d, %q", code, out)
		}
	}, migrations.Server)
}
