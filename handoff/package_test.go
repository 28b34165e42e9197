package handoff_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/orbitkit/orbit/handoff"
)

// source parses the files of the package, without tests.
func source(t *testing.T) (*token.FileSet, map[string]*ast.File) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set, files := token.NewFileSet(), make(map[string]*ast.File)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = file
	}
	return set, files
}

// HAND-090, HAND-091, HAND-050, HAND-070, HAND-080, HAND-093, AMB-044, AMB-052: the
// functions and methods are those of the contract, and InvalidError, which bad input gets.
func TestThePackageExportsTheContractAndNoMore(t *testing.T) {
	set, files := source(t)
	var got []string
	for _, file := range files {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || f.Recv != nil && strings.Contains(text(t, set, f.Recv.List[0].Type), "verdictError") {
				continue
			}
			f.Doc, f.Body = nil, nil
			got = append(got, text(t, set, f))
		}
	}
	slices.Sort(got)
	want := []string{
		"func (d *LocalDesk) Cancel(_ context.Context, key Key, by Agent) error",
		"func (d *LocalDesk) Offer(_ context.Context, t Ticket) (Ticket, error)",
		"func (d *LocalDesk) Receipt(key Key) (r Receipt, replyTo string, ok bool)",
		"func (d *LocalDesk) Reply(_ context.Context, key Key, token string, r Receipt) error",
		"func (d *LocalDesk) Snapshot(context.Context) ([]Ticket, error)",
		"func (d *LocalDesk) Take(_ context.Context, key Key, to Agent) (Handle, error)",
		"func (e *InvalidError) Error() string",
		"func (r Receipt) Validate() error",
		"func (t Ticket) Validate() error",
		"func Check(snapshot []Ticket, now time.Time) []Problem",
		"func ConcurrentTake(ctx context.Context, s Store, key Key, tos []Agent, ttl time.Duration) (int, error)",
		"func NewLocalDesk(opts ...DeskOption) *LocalDesk",
		"func WithClock(c Clock) DeskOption",
	}
	if !slices.Equal(got, want) {
		t.Errorf("functions are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var types []string
	for _, file := range files {
		for name, object := range file.Scope.Objects {
			if object.Kind == ast.Typ && ast.IsExported(name) {
				types = append(types, name)
			}
		}
	}
	slices.Sort(types)
	if want := "[Agent Clock DeskOption Handle InvalidError Key LocalDesk Problem Receipt ReceiptStatus State Store Ticket]"; fmt.Sprint(types) != want {
		t.Errorf("types are %v, want %s", types, want)
	}
}

func text(t *testing.T, set *token.FileSet, node any) string {
	t.Helper()
	var b strings.Builder
	if err := format.Node(&b, set, node); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// HAND-030, HAND-031, HAND-044, HAND-045, HAND-032…038
func TestConstantsAndSentinelsAreThoseOfTheContract(t *testing.T) { // AMB-055
	for got, want := range map[string]string{
		handoff.CodeEmptyKey: "empty_key", handoff.CodeDuplicateKey: "duplicate_key", handoff.CodeUnknownState: "unknown_state",
		handoff.CodeNoDeadline: "no_deadline", handoff.CodeHolderMismatch: "holder_mismatch", handoff.CodeMissingFence: "missing_generation",
		handoff.CodeReceiptUntimely: "receipt_without_close", handoff.CodeOverdueHolder: "overdue_holder",
		handoff.CodeOverdueReply: "overdue_reply", handoff.CodeTTLNonPositive: "ttl_non_positive",
		string(handoff.ReceiptDone): "done", string(handoff.ReceiptFailed): "failed", string(handoff.ReceiptRefused): "refused",
		string(handoff.StateOffered): "offered", string(handoff.StateAccepted): "accepted", string(handoff.StateClosed): "closed",
		string(handoff.StateExpired): "expired", string(handoff.StateWithdrawn): "withdrawn",
		handoff.ErrUnknownKey.Error():     "handoff: 交接单不存在",
		handoff.ErrTaken.Error():          "handoff: 交接单已被领取",
		handoff.ErrExpired.Error():        "handoff: 交接单已超时限",
		handoff.ErrNotAddressee.Error():   "handoff: 领取者不是指定接收方",
		handoff.ErrNotSource.Error():      "handoff: 收回者不是交接发起方",
		handoff.ErrLeaseLost.Error():      "handoff: 领取令牌不匹配",
		handoff.ErrAlreadySettled.Error(): "handoff: 交接单已是终态",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// HAND-040, HAND-041, HAND-042, HAND-043, HAND-046, AMB-043
func TestTypesAreThoseOfTheContract(t *testing.T) {
	for want, value := range map[string]any{
		"Token string; Fence uint64; Until time.Time":                                      handoff.Handle{},
		"Key handoff.Key; Code string; Text string":                                        handoff.Problem{},
		"Status handoff.ReceiptStatus; Summary string; Failure string; Artifacts []string": handoff.Receipt{},
		"Key handoff.Key; From handoff.Agent; To handoff.Agent; Payload []uint8; ReplyTo string; TTL time.Duration; Generation uint64; " +
			"Deadline time.Time; State handoff.State; Holder handoff.Agent; ReceiptAt time.Time": handoff.Ticket{},
	} {
		var fields []string
		for f := range reflect.TypeOf(value).Fields() {
			fields = append(fields, f.Name+" "+f.Type.String())
		}
		if got := strings.Join(fields, "; "); got != want {
			t.Errorf("%T is {%s}, want {%s}", value, got, want)
		}
	}
	for _, value := range []any{handoff.Key(""), handoff.Agent(""), handoff.State(""), handoff.ReceiptStatus("")} {
		if reflect.TypeOf(value).Kind() != reflect.String {
			t.Errorf("%T is no string", value)
		}
	}
}

// HAND-098, HAND-099, HAND-004: nothing but the standard library, and of that no database,
// network or file.
func TestThePackageStandsAlone(t *testing.T) { // AMB-054
	_, files := source(t)
	allowed := []string{"bytes", "cmp", "context", "crypto/rand", "crypto/subtle", "errors", "fmt", "slices", "strings", "sync", "time"}
	for name, file := range files {
		for _, i := range file.Imports {
			if path := strings.Trim(i.Path.Value, `"`); !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}

// HAND-020, HAND-017: what stands where, and that the package's comment tells it.
func TestFilesHoldWhatTheCommentSays(t *testing.T) {
	_, files := source(t)
	comment := files["doc.go"].Doc.Text()
	for file, names := range map[string][]string{
		"contention.go": {"ConcurrentTake"}, "judge.go": {"Validate", "Check"}, "local.go": {"NewLocalDesk", "WithClock"},
	} {
		if !strings.Contains(comment, file+" holds") {
			t.Errorf("the package's comment does not tell of %s", file)
		}
		for _, name := range names {
			if !slices.ContainsFunc(files[file].Decls, func(d ast.Decl) bool {
				f, ok := d.(*ast.FuncDecl)
				return ok && f.Name.Name == name
			}) {
				t.Errorf("%s has no %s", file, name)
			}
		}
	}
}

// HAND-001, HAND-003, HAND-004, HAND-018, HAND-100: the comment answers the four questions
// and what happens when time runs out, and says what the package does not give.
func TestTheCommentAnswersTheQuestions(t *testing.T) {
	_, files := source(t)
	comment := strings.Join(strings.Fields(files["doc.go"].Doc.Text()), " ")
	for _, passage := range []string{
		"Where is the hand-over point?", "Is it atomic?", "What is the idempotency key?", "Who gets the receipt?", "What if time runs out?",
		"both sides think that the other is responsible, or nobody is", "It gives no store that works across processes",
		"Life cycle: Experimental (graded at v0.35.0)",
	} {
		if !strings.Contains(comment, passage) {
			t.Errorf("the package's comment has no %q", passage)
		}
	}
	desk := strings.Join(strings.Fields(typeComment(t, files, "LocalDesk")), " ")
	if !strings.Contains(desk, "nothing is promised across processes") || !strings.Contains(desk, "no layout for a database") {
		t.Errorf("the comment of LocalDesk does not say what it promises: %s", desk)
	}
}

func typeComment(t *testing.T, files map[string]*ast.File, name string) string {
	t.Helper()
	set, all := source(t)
	var list []*ast.File
	for _, f := range all {
		list = append(list, f)
	}
	p, err := doc.NewFromFiles(set, list, "github.com/orbitkit/orbit/handoff")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range p.Types {
		if typ.Name == name {
			return typ.Doc
		}
	}
	t.Fatalf("no type %s", name)
	return ""
}

// HAND-092: of LocalDesk only Snapshot goes through all tickets.
func TestOnlySnapshotGoesThroughAllTickets(t *testing.T) {
	set, files := source(t)
	found := 0
	for _, d := range files["local.go"].Decls {
		ast.Inspect(d, func(n ast.Node) bool {
			if r, ok := n.(*ast.RangeStmt); ok && strings.Contains(text(t, set, r.X), "entries") {
				found++
				if f, ok := d.(*ast.FuncDecl); !ok || f.Name.Name != "Snapshot" {
					t.Errorf("%v goes through all tickets", set.Position(r.Pos()))
				}
			}
			return true
		})
	}
	if found != 1 {
		t.Errorf("%d loops over all tickets, want that of Snapshot", found)
	}
}

// HAND-002: graded Experimental at v0.35.0, with a reason, in the words of the rules.
func TestTheLifeCycleIsRecorded(t *testing.T) {
	content, err := os.ReadFile("../api-lifecycle.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cycle struct {
		Rules    string
		Packages map[string]struct{ Grade, Since, Reason string }
	}
	if err := yaml.Unmarshal(content, &cycle); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"handoff", "handoff/handofftest"} {
		if p := cycle.Packages[name]; p.Grade != "experimental" || p.Since != "v0.35.0" || p.Reason == "" {
			t.Errorf("%s is graded %+v", name, p)
		}
	}
	rules, err := os.ReadFile("../" + cycle.Rules)
	if err != nil || cycle.Rules != "docs/api-compat.md" {
		t.Fatalf("rules %q: %v", cycle.Rules, err)
	}
	for name, p := range cycle.Packages {
		if !strings.Contains(string(rules), "| "+p.Grade+" |") {
			t.Errorf("%s has the grade %q, which the rules do not have", name, p.Grade)
		}
		if _, err := os.Stat("../" + name); err != nil {
			t.Errorf("%s is graded: %v", name, err)
		}
	}
}

// MOD-002
func TestTheTopLevelFoldersAreThere(t *testing.T) {
	for _, folder := range []string{
		"outbox", "relay", "server", "worker", "resourceguard", "examples", "migrations", "handoff", "cmd", "internal", "docs", "scripts", "bench",
	} {
		if info, err := os.Stat("../" + folder); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", folder, err)
		}
	}
}
