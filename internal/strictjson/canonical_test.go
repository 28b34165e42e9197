package strictjson

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

func TestCanonicalTextIsOneForAllSpellings(t *testing.T) {
	tests := map[string][]string{
		`{"a":1e0,"b":[1e0,2e0]}`: {`{"b":[1,2],"a":1}`, ` { "b" : [ 1.0 , 20e-1 ] , "\u0061" : 1e0 } `},
		`"a\"\\/é\u000a\u001f"`:   {`"\u0061\u0022\u005C\/\u00e9\n\u001F"`},
		`"😀"`:                     {`"\ud83d\ude00"`, `"\uD83D\uDE00"`},
		`{}`:                      {` { } `},
		`[]`:                      {"[\t\r\n]"},
		`{"":{"a":0,"b":null},"Z":true,"aa":false}`: {`{"aa":false,"Z":true,"":{"b":null,"a":-0.0e5}}`},
	}
	for want, spellings := range tests {
		for _, text := range spellings {
			got, err := AppendCanonical([]byte("x"), []byte(text), 0)
			if err != nil || string(got) != "x"+want {
				t.Errorf("%s = %s, %v; want x%s", text, got, err, want)
			}
		}
	}
}

func TestCanonicalTextKeepsWhatDiffers(t *testing.T) {
	pairs := [][2]string{
		{`[1,2]`, `[2,1]`},
		{`1`, `"1"`},
		{`null`, `"null"`},
		{`9007199254740992`, `9007199254740993`},
		{`"é"`, `"e\u0301"`},
		{`{"a":null}`, `{}`},
		{`[]`, `{}`},
		{`"\u0000"`, `"0"`},
	}
	for _, p := range pairs {
		a, errA := AppendCanonical(nil, []byte(p[0]), 0)
		b, errB := AppendCanonical(nil, []byte(p[1]), 0)
		if errA != nil || errB != nil || bytes.Equal(a, b) {
			t.Errorf("%s and %s = %s (%v) and %s (%v), want two texts", p[0], p[1], a, errA, b, errB)
		}
	}
}

func TestDepthCountsFromTheGivenLevel(t *testing.T) {
	for level := range 3 {
		for name, pair := range map[string][2]string{"arrays": {"[", "]"}, "objects": {`{"a":`, "}"}} {
			deep := func(n int) []byte {
				return []byte(strings.Repeat(pair[0], n-1) + "[]" + strings.Repeat(pair[1], n-1))
			}
			if err := Check(deep(MaxDepth-level), level); err != nil {
				t.Errorf("%s, level %d: 32 levels: %v", name, level, err)
			}
			if err := Check(deep(MaxDepth-level+1), level); ruleOf(err) != ruleDepth {
				t.Errorf("%s, level %d: 33 levels: %v, want the depth rule", name, level, err)
			}
		}
	}
}

func TestErrorsNameThePlaceAndNotTheValue(t *testing.T) {
	tests := []struct{ text, want string }{
		{`{"items":[1,2,{"price":1e999}]}`, "items[2].price: " + ruleExponent},
		{`{"items":[1,{"a":1,"\u0061":2}]}`, "items[1].a: " + ruleDuplicate},
		{`{"0":{"1":[0,1e999]}}`, "0.1[1]: " + ruleExponent},
		{`[[1e999]]`, "[0][0]: " + ruleExponent},
		{`{"a b":{"x\n.y":1e999}}`, `["a b"]["x\n.y"]: ` + ruleExponent},
		{`{"secret":"\ud800"}`, "secret: " + ruleSyntax + ", byte 11"},
		{"{\"secret\":\"\xff\"}", "secret: " + ruleUTF8 + ", byte 11"},
		{`{"a":[1,2`, "a: " + ruleTruncated},
		{`{"a":1} {}`, ruleTrailing},
		{`1 x`, ruleTrailing},
		{" \n", ruleEmpty},
		{"\ufeff{}", ruleSyntax + ", byte 0"},
		{`{"` + strings.Repeat("n", 100) + `":1e999}`, `["` + strings.Repeat("n", 64) + `\u2026"]: ` + ruleExponent},
	}
	for _, test := range tests {
		if err := Check([]byte(test.text), 0); err == nil || err.Error() != test.want {
			t.Errorf("%s: error %q, want %q", test.text, err, test.want)
		}
	}
}

func TestLongPathsAreCutShort(t *testing.T) {
	name := strings.Repeat("n", 60)
	text := strings.Repeat(`{"`+name+`":`, 20) + "1e999" + strings.Repeat("}", 20)
	err := Check([]byte(text), 0)
	if err == nil || len(err.Error()) > 700 {
		t.Fatalf("error of %d bytes, want a path of about 512", len(err.Error()))
	}
}

func TestReadersAreReusedWithoutTraces(t *testing.T) {
	want := `{"a":1e0,"b":2e0}`
	for i := range 100 {
		Check([]byte(`{"z":{"y":[{"a":1,"a":`), 0) // leaves a walk in the middle
		text := []byte(`{"b":2,"a":1}`)
		got, err := AppendCanonical(nil, text, 0)
		clear(text) // the result must not be part of the input
		if err != nil || string(got) != want {
			t.Fatalf("round %d: %s, %v", i, got, err)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`{"b":[1,2.50,-0],"a":"\u0061\ud83d\ude00"}`, `[1e308,1.5e-308,0e309]`, `"\ud800"`, `{"a":1,"\u0061":2}`,
		"\"\xff\"", `[[[[[[[[]]]]]]]]`, `{"":null,"x":[true,false]}`, ` 1 `, `{`, `nul`, `1.7976931348623159e308`, "\ufeff1",
	} {
		f.Add([]byte(seed), uint64(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		before := bytes.Clone(data)
		text, err := AppendCanonical(nil, data, 0)
		if checked := Check(data, 0); (err == nil) != (checked == nil) {
			t.Fatalf("AppendCanonical: %v, Check: %v", err, checked)
		}
		if !bytes.Equal(before, data) {
			t.Fatal("input was changed")
		}
		if err != nil {
			return
		}
		if !json.Valid(data) || !json.Valid(text) {
			t.Fatalf("accepted %q as %q, which is not JSON", data, text)
		}
		if again := canonicalOf(t, text); !bytes.Equal(again, text) {
			t.Fatalf("canonical text %q has canonical text %q", text, again)
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, data, " ", "\t"); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		if other := canonicalOf(t, respell(rng, indented.Bytes())); !bytes.Equal(other, text) {
			t.Fatalf("another spelling of %q: %q, want %q", data, other, text)
		}
	})
}

// canonicalOf reads text whose numbers may have outgrown 256 characters, as a
// coefficient with an exponent is longer than the same number without.
func canonicalOf(t *testing.T, text []byte) []byte {
	r := newReader(text, MaxDepth)
	defer r.free()
	r.longest = MaxNumberLength + 8
	out, err := r.canonical(nil)
	if err != nil {
		t.Fatalf("%q is refused: %v", text, err)
	}
	return out
}

// respell writes some characters inside strings as escapes.
func respell(rng *rand.Rand, text []byte) []byte {
	var out []byte
	inString := false
	for i := 0; i < len(text); {
		c := text[i]
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case inString && c == '\\':
			size = 2
			if text[i+1] == 'u' {
				size = 6
			}
			out = append(out, text[i:i+size]...)
		case c == '"':
			inString = !inString
			out = append(out, c)
		case inString && rng.IntN(2) == 0:
			for _, u := range utf16.Encode([]rune{r}) {
				out = append(append(out, '\\', 'u'), hex4(u)...)
			}
		default:
			out = append(out, text[i:i+size]...)
		}
		i += size
	}
	return out
}

func hex4(u uint16) string {
	s := strconv.FormatUint(uint64(u), 16)
	return strings.Repeat("0", 4-len(s)) + s
}

func BenchmarkCanonical(b *testing.B) {
	text := []byte(`{"order":{"id":"9007199254740993","lines":[` +
		strings.Repeat(`{"sku":"A-1","count":3,"price":12.50},`, 20) + `{}]},"at":"2026-09-17T00:00:00Z"}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	out := make([]byte, 0, 2*len(text))
	for b.Loop() {
		if _, err := AppendCanonical(out, text, 1); err != nil {
			b.Fatal(err)
		}
	}
}
