package wire_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/internal/strictjson"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/internal/wire/wiretest"
)

const documentPath = "../../docs/worker-protocol.md"

func document(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(documentPath)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The parts of the document that describe messages, by sender.
var parts = map[string]string{wiretest.Client: "Messages of the worker", wiretest.Server: "Messages of the server"}

var (
	messageHeading = regexp.MustCompile("(?m)^### `(.+)`$")
	exampleFrame   = regexp.MustCompile("(?s)```json\n(.*?)\n```")
	memberRow      = regexp.MustCompile("(?m)^\\| `([a-z_.\\[\\]]+)` \\| (.*) \\|$")
)

// sections returns what the document says of each message of a sender.
func sections(t *testing.T, sender string) map[string]string {
	t.Helper()
	_, part, found := strings.Cut(document(t), "\n## "+parts[sender]+"\n")
	if !found {
		t.Fatalf("the document has no part %q", parts[sender])
	}
	part, _, _ = strings.Cut(part, "\n## ")
	all := map[string]string{}
	headings := messageHeading.FindAllStringSubmatchIndex(part, -1)
	for i, h := range headings {
		end := len(part)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		all[part[h[2]:h[3]]] = part[h[1]:end]
	}
	if len(all) != len(headings) {
		t.Errorf("%s: a message has two sections", parts[sender])
	}
	return all
}

// REF-WRK-003: no message is left out of the document, none is invented, and each is shown.
func TestTheDocumentHasASectionForEachMessage(t *testing.T) {
	for sender, kinds := range messages {
		described := sections(t, sender)
		for kind := range kinds {
			if _, found := described[kind]; !found {
				t.Errorf("%s: %s has no section", parts[sender], kind)
			}
		}
		for kind := range described {
			if _, known := kinds[kind]; !known {
				t.Errorf("%s: %s is no message of it", parts[sender], kind)
			}
		}
	}
}

// WRK-010: each example frame fits the schema and is read by the types of both sides.
func TestExampleFramesOfTheDocumentAreValid(t *testing.T) {
	shown, whole := 0, standard(t, "")
	for sender, kinds := range messages {
		for kind, section := range sections(t, sender) {
			frames := exampleFrame.FindAllStringSubmatch(section, -1)
			if len(frames) == 0 {
				t.Errorf("%s has no example", kind)
			}
			data, known := kinds[kind]
			for _, frame := range frames {
				shown++
				if !known {
					continue // another test tells
				}
				if err := wiretest.Check(sender, []byte(frame[1])); err != nil {
					t.Errorf("example of %s: %v\n%s", kind, err, frame[1])
				}
				if err := validate(t, whole, frame[1]); err != nil {
					t.Errorf("example of %s: by a validator of JSON Schema: %v\n%s", kind, err, frame[1])
				}
				readExample(t, kind, data, frame[1])
			}
		}
	}
	if all := len(exampleFrame.FindAllString(document(t), -1)); all != shown {
		t.Errorf("%d of %d examples stand in the section of a message", shown, all)
	}
}

// readExample reads a frame as the receiver does.
func readExample(t *testing.T, kind string, data any, frame string) {
	t.Helper()
	var e wire.Envelope
	if err := strictjson.DecodeInside([]byte(frame), &e, 2); err != nil {
		t.Errorf("example of %s: %v\n%s", kind, err, frame)
		return
	}
	if e.Type != kind {
		t.Errorf("the section of %s shows a %s", kind, e.Type)
	}
	if err := strictjson.DecodeInside(e.Data, reflect.New(reflect.TypeOf(data)).Interface(), 1); err != nil {
		t.Errorf("example of %s: %v\n%s", kind, err, frame)
	}
}

// The tables name the members of each message, and tell which may be missing.
func TestTheDocumentListsEveryMember(t *testing.T) {
	for sender, kinds := range messages {
		described := sections(t, sender)
		for kind := range kinds {
			all, required := wiretest.Properties("data." + kind)
			switch kind {
			case wire.TypeHello:
				all, required = append(all, "handlers[].name", "handlers[].version"), append(required, "handlers[].name", "handlers[].version")
			case wire.TypeAssign:
				more, needed := wiretest.Properties("task")
				all, required = append(all, more...), append(required, needed...)
			}
			compareRows(t, sender, kind, described[kind], all, required)
		}
	}
}

func compareRows(t *testing.T, sender, kind, section string, all, required []string) {
	t.Helper()
	var listed []string
	for _, row := range memberRow.FindAllStringSubmatch(section, -1) {
		name, words := row[1], row[2]
		if !slices.Contains(all, name) {
			continue // a table of values
		}
		listed = append(listed, name)
		may := strings.Contains(words, "optional") || strings.Contains(words, "left out") || strings.Contains(words, "if and only if")
		if sender == wiretest.Client {
			may = !strings.Contains(words, "required")
		}
		if may == slices.Contains(required, name) {
			t.Errorf("%s: %s may be missing: the table says %t", kind, name, may)
		}
	}
	slices.Sort(all)
	slices.Sort(listed)
	if !slices.Equal(listed, all) {
		t.Errorf("%s: the tables list %v, the message has %v", kind, listed, all)
	}
}

// vocabularies tells where the words of a group of constants are explained.
var vocabularies = []struct{ prefix, sender, kind string }{
	{"Outcome", wiretest.Client, wire.TypeFinish},
	{"Resume", wiretest.Server, wire.TypeResumed},
	{"Finish", wiretest.Server, wire.TypeFinished},
	{"Code", wiretest.Server, wire.TypeError},
	{"", "", ""}, // all others: anywhere
}

// Whatever a peer can say in one of our words is explained where it is said: outcomes,
// answers, error codes and close codes.
func TestTheDocumentNamesEveryConstant(t *testing.T) {
	names := constants(t)
	if len(names) < 40 {
		t.Fatalf("found %d constants: are they read rightly?", len(names))
	}
	for name, value := range names {
		shown := "`" + value + "`"
		switch _, err := strconv.Atoi(value); {
		case strings.HasPrefix(name, "Close"):
			shown = "\n| " + value + " |"
		case err == nil:
			shown = value
		}
		text := document(t)
		at := slices.IndexFunc(vocabularies, func(v struct{ prefix, sender, kind string }) bool { return strings.HasPrefix(name, v.prefix) })
		if v := vocabularies[at]; v.kind != "" {
			text = sections(t, v.sender)[v.kind]
		}
		if !strings.Contains(text, shown) {
			t.Errorf("%s: the document does not explain %q", name, shown)
		}
	}
	for _, code := range []string{orbit.CodeInvalidArgument, orbit.CodePermissionDenied, orbit.CodeNotFound, orbit.CodeStateConflict, orbit.CodeUnavailable} {
		if !strings.Contains(sections(t, wiretest.Server)[wire.TypeError], "\n| `"+code+"` |") {
			t.Errorf("the document does not explain the code %s", code)
		}
	}
}

// constants returns the exported constants of message.go, as text.
func constants(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "message.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			all[name.Name] = constantText(t, name.Name, spec.Values[i])
		}
		return true
	})
	return all
}

func constantText(t *testing.T, name string, value ast.Expr) string {
	t.Helper()
	if shift, ok := value.(*ast.BinaryExpr); ok && shift.Op == token.SHL {
		n, _ := constant.Uint64Val(constant.MakeFromLiteral(shift.Y.(*ast.BasicLit).Value, token.INT, 0))
		return constant.Shift(constant.MakeFromLiteral(shift.X.(*ast.BasicLit).Value, token.INT, 0), token.SHL, uint(n)).String()
	}
	literal, ok := value.(*ast.BasicLit)
	if !ok {
		t.Fatalf("%s has a form that this test does not read", name)
	}
	if literal.Kind == token.STRING {
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	return literal.Value
}
