package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/dbfault"
	"github.com/orbitkit/orbit/internal/dbtest"
)

// A commandCase is one kind of command, ready to be sent on a fresh node.
type commandCase struct {
	name   string
	status int
	make   func(h *hand) ask
}

var commandCases = []commandCase{
	{"Cancel", 200, func(h *hand) ask {
		made := h.n.submit("s", h.n.body(`"payload":"`+canary+`"`)).want(h.t, 201, "").taskOf(h.t)
		return ask{method: "POST", path: "/v1/tasks/" + made.ID + ":cancel", body: cancelBody(1, canary)}
	}},
	{"CancelRunning", 202, func(h *hand) ask {
		made := running.make(h, "s")
		return ask{method: "POST", path: "/v1/tasks/" + made.ID + ":cancel", body: cancelBody(made.Revision, canary)}
	}},
	{"Review", 200, func(h *hand) ask {
		made := inReview.make(h, "s")
		body := reviewBody(made.Revision, "SUCCEEDED", `"note":"`+canary+`"`, `"result":"`+canary+`"`, `"evidence":"`+canary+`"`)
		return ask{method: "POST", path: "/v1/tasks/" + made.ID + ":review", body: body}
	}},
	{"Retry", 201, func(h *hand) ask {
		made := failed.make(h, "s")
		return ask{method: "POST", path: "/v1/tasks/" + made.ID + ":retry", body: cancelBody(made.Revision, canary)}
	}},
	{"CreateQueue", 201, func(h *hand) ask {
		return ask{method: "POST", path: "/v1/queues", body: `{"name":"` + canary + `"}`}
	}},
	{"UpdateQueue", 200, func(h *hand) ask {
		return ask{method: "PATCH", path: "/v1/queues/" + h.n.creds.QueueID, body: `{"expected_revision":"1","name":"` + canary + `","max_backlog":9}`}
	}},
	{"UpdateApplication", 200, func(h *hand) ask {
		return ask{method: "PATCH", path: "/v1/application", body: `{"expected_revision":"1","max_unfinished":9,"max_active_attempts":9}`}
	}},
}

// audits counts what the commands of a node have left.
func (n *node) audits() int {
	return n.count("audit WHERE request_id IS NOT NULL AND action <> ?", []byte("task.submit"))
}

// ERR-012, ERR-017, IDEM-013: whatever becomes of the COMMIT, a command acts once and its
// answer is exact or says that it does not know; a repeat is exact.
func TestUnknownCommitsOfCommands(t *testing.T) {
	for _, c := range commandCases {
		t.Run(c.name, func(t *testing.T) {
			onFaults(t, func(t *testing.T, n *node, faults *dbfault.Faults) {
				request := c.make(n.hand())
				request.key = "k"
				n.takeTold()
				first := func(v dbfault.Verdict) func(int) dbfault.Verdict {
					return func(nth int) dbfault.Verdict {
						if nth == 1 {
							return v
						}
						return dbfault.Pass
					}
				}
				faults.OnCommit(first(dbfault.LoseAnswer))
				a := n.do(request).want(t, c.status, "")
				if a.header.Get(orbit.HeaderReplayed) != "" || faults.Commits() != 1 || n.audits() != 1 {
					t.Errorf("lost answer: replayed %q, %d commits, %d audit rows", a.header.Get(orbit.HeaderReplayed), faults.Commits(), n.audits())
				}
				if told := len(n.takeTold()); (told == 1) != (c.status == 202) {
					t.Errorf("lost answer: %d workers told", told)
				}
				if again := n.do(request); again.header.Get(orbit.HeaderReplayed) != "true" {
					t.Errorf("repeat = %d %s, not marked", again.status, again.body)
				}
			})
		})
	}
}

func TestCommitsOfCommandsThatDoNotArrive(t *testing.T) {
	for _, c := range commandCases {
		t.Run(c.name, func(t *testing.T) {
			onFaults(t, func(t *testing.T, n *node, faults *dbfault.Faults) {
				request := c.make(n.hand())
				request.key = "k"
				faults.OnCommit(func(nth int) dbfault.Verdict {
					if nth == 1 {
						return dbfault.CutBefore
					}
					return dbfault.Pass
				})
				a := n.do(request).want(t, c.status, "")
				if a.header.Get(orbit.HeaderReplayed) != "" || faults.Commits() != 2 || n.audits() != 1 {
					t.Errorf("replayed %q, %d commits, %d audit rows", a.header.Get(orbit.HeaderReplayed), faults.Commits(), n.audits())
				}
				n.verify()
			})
		})
	}
}

// What cannot be looked up is unknown, and nothing of it is in the log.
func TestUnknownCommandsAreReportedAsSuch(t *testing.T) {
	for _, c := range commandCases {
		t.Run(c.name, func(t *testing.T) {
			onFaults(t, func(t *testing.T, n *node, faults *dbfault.Faults) {
				request := c.make(n.hand())
				request.key = "k"
				faults.OnCommit(func(int) dbfault.Verdict {
					faults.Break()
					return dbfault.LoseAnswer
				})
				got := n.do(request).want(t, 503, orbit.CodeUnavailable)
				if faults.Commits() != 1 {
					t.Fatal("the fault did not fire")
				}
				if log := n.log.String(); !strings.Contains(log, got.requestID) || strings.Contains(log, canary) { // ERR-015
					t.Errorf("log: %s", log)
				}
				faults.Mend()
				faults.OnCommit(func(int) dbfault.Verdict { return dbfault.Pass })
				again := n.do(request)
				if again.status >= 300 || again.header.Get(orbit.HeaderReplayed) != "true" || n.audits() != 1 {
					t.Errorf("repeat = %d %s; %d audit rows", again.status, again.body, n.audits())
				}
				n.verify()
			})
		})
	}
}

// ERR-015: neither an answer nor a refusal puts a reason, a note or a payload in the log.
func TestCommandsKeepTheirWordsOutOfTheLog(t *testing.T) {
	for _, c := range commandCases {
		n := onSQLite(t)
		request := c.make(n.hand())
		for i, body := range []string{request.body, request.body, strings.TrimSuffix(request.body, "}") + `,"` + canary + `":1}`} {
			request.key, request.body = fmt.Sprint("k", i), body
			n.do(request)
		}
		if log := n.log.String(); strings.Contains(log, canary) {
			t.Errorf("%s: log: %s", c.name, log)
		}
	}
}

// ERR-014, ERR-015: an engine that refuses a statement, and quotes a value of it, gives 503
// and quotes nothing to anybody.
func TestEngineErrorsOfCommandsQuoteNothing(t *testing.T) {
	onEachEngine(t, func(t *testing.T, n *node) {
		request := commandCases[0].make(n.hand())
		request.key = "k"
		statement := `CREATE TRIGGER quote_note BEFORE INSERT ON audit FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'cannot store ` + canary + `'`
		if n.db.Engine == dbtest.SQLite {
			statement = `CREATE TRIGGER quote_note BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'cannot store ` + canary + `'); END`
		}
		n.exec(statement)
		a := n.do(request).want(t, 503, orbit.CodeUnavailable)
		log := n.log.String()
		if !strings.Contains(log, "insert audit row") {
			t.Errorf("the failure is not in the log: %s", log)
		}
		for _, bad := range []string{canary, "INSERT", "cannot store"} {
			if strings.Contains(log, bad) || strings.Contains(string(a.body), bad) {
				t.Errorf("%q is in the log or the answer: %s %s", bad, log, a.body)
			}
		}
		if got := n.count("idempotency WHERE operation = 2"); got != 0 || n.count("task WHERE revision <> 1") != 0 {
			t.Errorf("%d records of a command that was rolled back", got)
		}
	})
}
