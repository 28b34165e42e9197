package strictjson

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

type level string

func (l *level) UnmarshalText(text []byte) error {
	if string(text) != "low" {
		return errors.New("must be low")
	}
	*l = level(text)
	return nil
}

type part struct {
	Name string `json:"name" strict:"required"`
}

type document struct {
	Text    string          `json:"text" strict:"required"`
	On      bool            `json:"on"`
	Small   uint8           `json:"small"`
	Signed  int32           `json:"signed"`
	Large   uint64          `json:"large"`
	Level   level           `json:"level"`
	Maybe   *uint64         `json:"maybe"`
	Nothing *string         `json:"nothing" strict:"nullable"`
	Part    part            `json:"part"`
	Parts   []part          `json:"parts"`
	Raw     json.RawMessage `json:"raw"`
	Value   Value           `json:"value"`
	Local   string          `json:"-"`
}

func TestDecodeFillsWhatIsThere(t *testing.T) {
	text := []byte(`{"text":"\u0061","on":true,"small":255,"signed":2147483647,"large":18446744073709551615,
		"level":"low","maybe":0,"nothing":null,"part":{"name":"p"},"parts":[{"name":"q"},{"name":"r"}],
		"raw" : { "b" : 1.0, "a":2 } ,"value": [ 10 , "\n" ] }`)
	var got document
	if err := Decode(text, &got); err != nil {
		t.Fatal(err)
	}
	clear(text) // nothing may alias the input
	want := document{
		Text: "a", On: true, Small: 255, Signed: 1<<31 - 1, Large: 1<<64 - 1, Level: "low", Maybe: new(uint64),
		Part: part{"p"}, Parts: []part{{"q"}, {"r"}},
		Raw:   json.RawMessage(`{ "b" : 1.0, "a":2 }`),
		Value: Value{Raw: json.RawMessage(`[ 10 , "\n" ]`), Canonical: []byte(`[1e1,"\u000a"]`)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	tests := []struct{ text, want string }{
		{``, ruleEmpty},
		{`null`, ruleObject},
		{`[]`, ruleObject},
		{`"x"`, ruleObject},
		{`{}`, "text: " + ruleRequired},
		{`{"text":"a"}1`, ruleTrailing},
		{`{"text":"a",}`, ruleSyntax + ", byte 11"},
		{`{"text":"a","Text":"b"}`, "Text: " + ruleUnknown},
		{`{"text":"a","text":"b"}`, "text: " + ruleDuplicate},
		{`{"text":"a","\u0074ext":"b"}`, "text: " + ruleDuplicate},
		{`{"text":"a","Local":"b"}`, "Local: " + ruleUnknown},
		{`{"text":"a","-":"b"}`, "-: " + ruleUnknown},
		{`{"text":null}`, "text: " + ruleNull},
		{`{"text":7}`, "text: " + ruleString},
		{`{"text":{"deep":1}}`, "text: " + ruleString},
		{`{"text":"a","on":"true"}`, "on: " + ruleBool},
		{`{"text":"a","on":1}`, "on: " + ruleBool},
		{`{"text":"a","small":256}`, "small: must be at most 255"},
		{`{"text":"a","signed":2147483648}`, "signed: must be at most 2147483647"},
		{`{"text":"a","signed":-1}`, "signed: " + ruleInteger},
		{`{"text":"a","large":18446744073709551616}`, "large: must be at most 18446744073709551615"},
		{`{"text":"a","large":1.0}`, "large: " + ruleInteger},
		{`{"text":"a","large":1e0}`, "large: " + ruleInteger},
		{`{"text":"a","large":"1"}`, "large: " + ruleInteger},
		{`{"text":"a","large":[1]}`, "large: " + ruleInteger},
		{`{"text":"a","level":"high"}`, "level: must be low"},
		{`{"text":"a","level":null}`, "level: " + ruleNull},
		{`{"text":"a","maybe":null}`, "maybe: " + ruleNull},
		{`{"text":"a","part":null}`, "part: " + ruleNull},
		{`{"text":"a","part":{}}`, "part.name: " + ruleRequired},
		{`{"text":"a","part":[]}`, "part: " + ruleObject},
		{`{"text":"a","part":{"name":"p","more":1}}`, "part.more: " + ruleUnknown},
		{`{"text":"a","parts":{}}`, "parts: " + ruleArray},
		{`{"text":"a","parts":[{"name":"p"},null]}`, "parts[1]: " + ruleNull},
		{`{"text":"a","parts":[{"name":"p"},{"nam":"q"}]}`, "parts[1].nam: " + ruleUnknown},
		{`{"text":"a","raw":null}`, "raw: " + ruleNull},
		{`{"text":"a","raw":{"x":[1e999]}}`, "raw.x[0]: " + ruleExponent},
		{`{"text":"a","raw":{"x":1,"x":2}}`, "raw.x: " + ruleDuplicate},
		{`{"text":"a","value":null}`, "value: " + ruleNull},
		{`{"text":"a","value":{"x":[1e999]}}`, "value.x[0]: " + ruleExponent},
	}
	for _, test := range tests {
		var d document
		if err := Decode([]byte(test.text), &d); err == nil || err.Error() != test.want {
			t.Errorf("%s: error %v, want %s", test.text, err, test.want)
		}
	}
}

func TestDecodeInsideDoesNotCountTheCarrier(t *testing.T) {
	deep := func(n int) []byte { // the value is at level 2
		return []byte(`{"text":"a","raw":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`)
	}
	for carrier := range 3 {
		var d document
		if err := DecodeInside(deep(MaxDepth+carrier), &d, carrier); err != nil {
			t.Errorf("carrier %d: 32 levels: %v", carrier, err)
		}
		if err := DecodeInside(deep(MaxDepth+carrier+1), &d, carrier); ruleOf(err) != ruleDepth {
			t.Errorf("carrier %d: 33 levels: %v, want the depth rule", carrier, err)
		}
	}
}

func TestDecodePanicsForTypesThatItCannotFill(t *testing.T) {
	for name, v := range map[string]any{
		"NotAPointer": document{},
		"Float": &struct {
			F float64 `json:"f"`
		}{},
		"Map": &struct {
			M map[string]string `json:"m"`
		}{},
		"NoName": &struct{ F string }{},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			Decode([]byte(`{}`), v)
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"text":"a","raw":[1],"value":{"b":1,"a":2}}`, `{"text":"a","parts":[{"name":"x"}]}`, `{"TEXT":"a"}`, `{"text":1}`, `[`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var strict document
		if Decode(data, &strict) != nil {
			return
		}
		var probe struct {
			Text *string
			Raw  json.RawMessage
		}
		if err := json.Unmarshal(data, &probe); err != nil || probe.Text == nil || *probe.Text != strict.Text {
			t.Fatalf("%q: text %q, encoding/json reads %v, %v", data, strict.Text, probe.Text, err)
		}
		if string(probe.Raw) != string(strict.Raw) {
			t.Fatalf("%q: raw %q, encoding/json reads %q", data, strict.Raw, probe.Raw)
		}
	})
}
