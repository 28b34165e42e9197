package guardhttp_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/orbitkit/orbit/internal/dbtest"
	"github.com/orbitkit/orbit/migrations"
	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardhttp"
)

var good = resourceguard.Write{Namespace: "ns", Key: "stock/a b", Token: 18446744073709551615, Attempt: "attempt-1", Operation: "op%ü"}

func headers(t *testing.T, w resourceguard.Write) http.Header {
	t.Helper()
	h := http.Header{}
	if err := guardhttp.Set(h, w); err != nil {
		t.Fatal(err)
	}
	return h
}

// What breaks a rule is answered with the header and the rule, before the handler.
func TestHeadersAreReadStrictly(t *testing.T) { // RG-020, RG-009
	called := 0
	server := guardhttp.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		called++
		if write, ok := guardhttp.Write(r.Context()); !ok || fmt.Sprint(write) != fmt.Sprint(good) {
			t.Errorf("write = %+v, %t; want %+v", write, ok, good)
		}
	}))
	serve := func(h http.Header) (int, map[string]any) {
		r := httptest.NewRequest(http.MethodPost, "/stock", nil)
		r.Header = h
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		var body map[string]any
		json.Unmarshal(w.Body.Bytes(), &body)
		if strings.Contains(w.Body.String(), "canary") {
			t.Errorf("the answer shows the value: %s", w.Body)
		}
		return w.Code, body
	}
	if code, _ := serve(headers(t, good)); code != http.StatusOK || called != 1 {
		t.Fatalf("good headers: %d, %d calls", code, called)
	}
	const digits, escaped = "decimal", "printable ASCII"
	long := strings.Repeat("x", resourceguard.MaxName+1)
	for _, c := range []struct{ header, value, rule string }{
		{guardhttp.HeaderToken, "", digits}, {guardhttp.HeaderToken, "0", digits}, {guardhttp.HeaderToken, "007", digits},
		{guardhttp.HeaderToken, "+7", digits}, {guardhttp.HeaderToken, "-7", digits}, {guardhttp.HeaderToken, "7.0", digits},
		{guardhttp.HeaderToken, "7e3", digits}, {guardhttp.HeaderToken, "0x7", digits}, {guardhttp.HeaderToken, " 7", digits},
		{guardhttp.HeaderToken, "7,8", digits}, {guardhttp.HeaderToken, "18446744073709551616", digits}, {guardhttp.HeaderToken, "canary", digits},
		{guardhttp.HeaderKey, "", "must not be empty"}, {guardhttp.HeaderKey, long, "191"}, {guardhttp.HeaderKey, "a b", escaped},
		{guardhttp.HeaderKey, "canary%2", escaped}, {guardhttp.HeaderKey, "%zz", escaped}, {guardhttp.HeaderKey, "ü", escaped},
		{guardhttp.HeaderKey, "%61dmin", escaped}, {guardhttp.HeaderKey, "%c3%bc", escaped}, {guardhttp.HeaderKey, "%FF", "UTF-8"}, {guardhttp.HeaderKey, "%0A", "control"},
		{guardhttp.HeaderNamespace, long, "191"}, {guardhttp.HeaderAttempt, long, "191"}, {guardhttp.HeaderOperation, long, "191"},
	} {
		h := headers(t, good)
		h.Set(c.header, c.value)
		code, body := serve(h)
		if rule, _ := body["rule"].(string); code != 400 || body["header"] != c.header || body["code"] != "invalid" || !strings.Contains(rule, c.rule) {
			t.Errorf("%s %q: %d %v, want 400 and %q", c.header, c.value, code, body, c.rule)
		}
	}
	for name := range headers(t, good) {
		missing, twice := headers(t, good), headers(t, good)
		missing.Del(name)
		twice.Add(name, twice.Get(name))
		for rule, h := range map[string]http.Header{"is required": missing, "must be given once": twice} {
			if code, body := serve(h); code != 400 || body["header"] != name || body["rule"] != rule {
				t.Errorf("%s: %d %v, want 400 and %q", name, code, body, rule)
			}
		}
	}
	if called != 1 {
		t.Errorf("the handler was called %d times, want once", called)
	}
}

// Every write that the guard takes arrives as it was sent, and no other is sent.
func TestAWriteArrivesAsItWasSent(t *testing.T) { // RG-008, RG-020
	name := rapid.StringOfN(rapid.Rune().Filter(func(r rune) bool { return !unicode.IsControl(r) }), 1, resourceguard.MaxName, -1)
	rapid.Check(t, func(t *rapid.T) {
		sent := resourceguard.Write{
			Namespace: name.Draw(t, "namespace"), Key: name.Draw(t, "key"), Attempt: name.Draw(t, "attempt"),
			Operation: name.Draw(t, "operation"), Token: rapid.Uint64Min(1).Draw(t, "token"),
		}
		h := http.Header{}
		if err := guardhttp.Set(h, sent); err != nil {
			t.Fatalf("Set(%+v) = %v", sent, err)
		}
		if got, err := guardhttp.Parse(h); err != nil || fmt.Sprint(got) != fmt.Sprint(sent) {
			t.Fatalf("Parse = %+v, %v; want %+v", got, err, sent)
		}
	})
	for field, bad := range map[string]func(*resourceguard.Write){
		"token": func(w *resourceguard.Write) { w.Token = 0 }, "key": func(w *resourceguard.Write) { w.Key = "" },
		"operation": func(w *resourceguard.Write) { w.Operation = "a\nb" },
	} {
		h, w := http.Header{"X": {"y"}}, good
		bad(&w)
		if err := guardhttp.Set(h, w); !errors.Is(err, resourceguard.ErrInvalid) || !strings.Contains(err.Error(), field) || len(h) != 1 {
			t.Errorf("Set = %v and %v, want an error that names %s and nothing set", err, h, field)
		}
	}
}

// A guard behind HTTP: each verdict has its status and body, and nothing else is told.
func TestVerdictsHaveTheirAnswers(t *testing.T) { // RG-010, RG-014, RG-017, RG-020
	db := dbtest.Open(t, dbtest.SQLite, migrations.Guard)
	guard, err := resourceguard.New(resourceguard.SQLite, func(_ context.Context, _, key string) error {
		if key == "forbidden" {
			return errors.New("canary")
		}
		return nil
	}, resourceguard.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var refusal error
	server := httptest.NewServer(guardhttp.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		write, _ := guardhttp.Write(r.Context())
		write.Content, _ = io.ReadAll(r.Body)
		err := guard.Transact(r.Context(), db.Write(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := guard.Apply(ctx, tx, write, func(context.Context, resourceguard.Tx) ([]byte, error) { return nil, refusal })
			return err
		})
		if !guardhttp.Refuse(w, err) && err != nil {
			http.Error(w, "business", http.StatusTeapot)
		}
	})))
	defer server.Close()
	send := func(w resourceguard.Write, content string) (*http.Response, map[string]any) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		if err := guardhttp.Set(r.Header, w); err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if strings.Contains(string(body), "canary") {
			t.Errorf("the answer tells too much: %s", body)
		}
		var p map[string]any
		json.Unmarshal(body, &p)
		return resp, p
	}
	at := func(token uint64, attempt, operation string) resourceguard.Write {
		return resourceguard.Write{Namespace: "ns", Key: "key", Token: token, Attempt: attempt, Operation: operation}
	}
	forbidden := at(9, "b", "op")
	forbidden.Key = "forbidden"
	for _, c := range []struct {
		name    string
		w       resourceguard.Write
		content string
		refusal error
		status  int
		body    map[string]any
	}{
		{"applied", at(1<<63, "canary", "op"), "x", nil, 200, nil},
		{"replayed", at(1<<63, "canary", "op"), "x", nil, 200, nil},
		{"stale", at(5, "a", "other"), "x", nil, 412, map[string]any{"code": "stale", "presented": "5", "highest": "9223372036854775808", "already_applied": false}},
		{"stale and applied", at(5, "a", "op"), "x", nil, 412, map[string]any{"code": "stale", "presented": "5", "highest": "9223372036854775808", "already_applied": true}},
		{"collision", at(1<<63, "b", "op"), "x", nil, 409, map[string]any{"code": "token_collision", "already_applied": true}},
		{"conflict", at(1<<63, "canary", "op"), "y", nil, 409, map[string]any{"code": "operation_conflict"}},
		{"no content", at(1<<63, "canary", "op"), "", nil, 400, map[string]any{"code": "invalid", "field": "content", "rule": "must not be empty"}},
		{"not authorised", forbidden, "x", nil, 403, map[string]any{"code": "not_authorised"}},
		{"retryable", at(1<<63, "canary", "new"), "x", fmt.Errorf("%w: canary", resourceguard.ErrRetryable), 503, map[string]any{"code": "retry"}},
		{"unknown", at(1<<63, "canary", "new"), "x", fmt.Errorf("%w: canary", resourceguard.ErrUnknownCommit), 503, map[string]any{"code": "unknown"}},
		{"business", at(1<<63, "canary", "new"), "x", errors.New("sold out"), 418, nil},
	} {
		refusal = c.refusal
		resp, body := send(c.w, c.content)
		if resp.StatusCode != c.status || (c.status == 503) != (resp.Header.Get("Retry-After") != "") {
			t.Errorf("%s: %d %v, want %d", c.name, resp.StatusCode, resp.Header, c.status)
		}
		if c.body == nil {
			continue
		}
		c.body["status"], c.body["title"] = float64(c.status), body["title"]
		if !maps.Equal(body, c.body) || body["title"] == "" || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %v, want %v", c.name, body, c.body)
		}
	}
}

// What is not there is refused by name, at set-up and before anything is set.
func TestNothingInPlaceOfAnArgumentIsRefused(t *testing.T) {
	if err := guardhttp.Set(nil, good); !errors.Is(err, resourceguard.ErrInvalid) {
		t.Errorf("Set into no header = %v, want ErrInvalid", err)
	}
	for _, next := range []http.Handler{nil, http.HandlerFunc(nil)} {
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, resourceguard.ErrInvalid) {
					t.Errorf("Require(%T) panics with %v, want ErrInvalid", next, err)
				}
			}()
			guardhttp.Require(next)
		}()
	}
}

// A handler that forgot Require finds no write.
func TestBehindNoRequireThereIsNoWrite(t *testing.T) {
	if w, ok := guardhttp.Write(t.Context()); ok || w.Key != "" {
		t.Errorf("Write = %+v, %t", w, ok)
	}
}
