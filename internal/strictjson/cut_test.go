package strictjson

import (
	"slices"
	"strings"
	"testing"
)

func cutText(t *testing.T, text string) ([]string, error) {
	t.Helper()
	parts, err := Cut([]byte(text), "items", 3)
	var out []string
	for _, p := range parts {
		out = append(out, string(p))
	}
	return out, err
}

func TestCutLeavesFaultsInsideToTheElement(t *testing.T) {
	for _, text := range []string{
		`1`, `null`, `{"a":1,"a":2}`, `"\ud800"`, `{"\ud800":1}`, `1e999`, strings.Repeat("[", 40) + strings.Repeat("]", 40),
	} {
		got, err := cutText(t, ` { "\u0069tems" : [ 0 , `+text+` ] } `)
		if err != nil || !slices.Equal(got, []string{"0", text}) {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

// The tokenizer itself stops at 10,000 levels.
func TestCutSurvivesAnElementOfAbsurdDepth(t *testing.T) {
	deep := strings.Repeat(`[{"a":`, 9000) + `"]\"}"` + strings.Repeat("}]", 9000)
	got, err := cutText(t, `{"items":["one",`+deep+`,"three"]}`)
	if err != nil || len(got) != 3 || got[0] != `"one"` || got[2] != `"three"` {
		t.Fatalf("%d elements, %v; want three", len(got), err)
	}
	if err := Check([]byte(got[1]), 1); ruleOf(err) != ruleDepth {
		t.Fatalf("the deep element: %v, want the depth rule", err)
	}
	if _, err := cutText(t, `{"items":[`+strings.Repeat("[", 20000)+`]}`); err == nil {
		t.Fatal("brackets that do not balance were cut")
	}
}

// However deep it stands, what is no JSON makes the document one that cannot be cut
// (API-013, REF-BATCH-002).
func TestCutRefusesBadSyntaxAtAnyDepth(t *testing.T) {
	for _, levels := range []int{3, 126, 127, 128, 8999, 9000, 9001, 9999, 10_001, 30_000} {
		for _, inner := range []string{`GARBAGE } not json ,, {`, `tru`, `1,`, `"a" "b"`} {
			deep := strings.Repeat("[", levels) + inner + strings.Repeat("]", levels)
			if parts, err := cutText(t, `{"items":["good",`+deep+`]}`); err == nil {
				t.Errorf("%d levels around %s: cut into %d parts", levels, inner, len(parts))
			}
		}
		good := strings.Repeat("[", levels) + `"]"` + strings.Repeat("]", levels)
		if parts, err := cutText(t, `{"items":["good",`+good+`]}`); err != nil || len(parts) != 2 {
			t.Errorf("%d levels: %d parts, %v; want 2", levels, len(parts), err)
		}
	}
}

func TestCutRefusesWhatCannotBeCut(t *testing.T) {
	const count = "items: must hold 1 to 3 elements"
	tests := []struct{ text, want string }{
		{``, ruleEmpty},
		{`[]`, ruleObject},
		{`{}`, "items: " + ruleRequired},
		{`{"items":[]}`, count},
		{`{"items":[1,2,3,4]}`, count},
		{`{"items":null}`, "items: " + ruleArray},
		{`{"items":{}}`, "items: " + ruleArray},
		{`{"items":[1],"more":1}`, "more: " + ruleUnknown},
		{`{"Items":[1]}`, "Items: " + ruleUnknown},
		{`{"items":[1],"items":[2]}`, "items: " + ruleDuplicate},
		{`{"items":[1],"\u0069tems":[2]}`, "items: " + ruleDuplicate},
		{`{"items":[1]}{}`, ruleTrailing},
		{"{\"items\":[\"\xff\"]}", ruleUTF8},
	}
	for _, test := range tests {
		if _, err := cutText(t, test.text); err == nil || err.Error() != test.want {
			t.Errorf("%s: error %v, want %s", test.text, err, test.want)
		}
	}
	if _, err := cutText(t, `{"items":[{"task":{"payload":[[1,x]]}}]}`); err == nil || !strings.HasPrefix(err.Error(), "items[0].task.payload[0][1]: ") {
		t.Errorf("error %v does not show where", err)
	}
	for _, text := range []string{`{"items":[1`, `{"items":[1,]}`, `{"items":[tru]}`, `{"items":["a]}`, `{"items":[[}]}`} {
		if got, err := cutText(t, text); err == nil {
			t.Errorf("%s was cut into %q", text, got)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add(`{"a":[1,"]"]}`)
	f.Add(`1`)
	f.Add(strings.Repeat("[", 200) + strings.Repeat("]", 200))
	f.Fuzz(func(t *testing.T, element string) {
		got, err := Cut([]byte(`{"items":[0,`+element+`,0]}`), "items", 3)
		if err != nil || len(got) != 3 {
			return
		}
		if want := string(Trim([]byte(element))); string(got[1]) != want {
			t.Fatalf("cut out %q, want %q", got[1], want)
		}
	})
}
