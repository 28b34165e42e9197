package wire_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/strictjson"
	"github.com/orbitkit/orbit/internal/wire"
	"github.com/orbitkit/orbit/internal/wire/wiretest"
)

// Every message with its type, by sender.
var messages = map[string]map[string]any{
	wiretest.Client: {
		wire.TypeHello: wire.Hello{}, wire.TypeCredit: wire.Credit{}, wire.TypeStart: wire.Attempt{}, wire.TypeResume: wire.Attempt{},
		wire.TypeRenew: wire.Renew{}, wire.TypeFinish: wire.Finish{}, wire.TypeReturn: wire.Attempt{}, wire.TypeDrain: struct{}{},
	},
	wiretest.Server: {
		wire.TypeHelloOK: wire.HelloOK{}, wire.TypeAssign: wire.Assign{}, wire.TypeStarted: wire.Started{}, wire.TypeResumed: wire.Resumed{},
		wire.TypeRenewed: wire.Renewed{}, wire.TypeFinished: wire.Finished{}, wire.TypeReturned: wire.Returned{}, wire.TypeCancel: wire.Cancel{},
		wire.TypeServerDraining: wire.ServerDraining{}, wire.TypeDrainOK: struct{}{}, wire.TypeError: wire.Error{},
	},
}

func TestSchemaAndTypesNameTheSameMembers(t *testing.T) { // WRK-010
	for _, kinds := range messages {
		for kind, data := range kinds {
			compareMembers(t, "data."+kind, reflect.TypeOf(data))
		}
	}
	compareMembers(t, "task", reflect.TypeOf(wire.Task{}))
	compareMembers(t, "limit", reflect.TypeOf(wire.CreditLimit{}))
}

// compareMembers holds a struct and its schema to each other. What is always written is
// required, what may be left out is not.
func compareMembers(t *testing.T, name string, typ reflect.Type) {
	t.Helper()
	var all, always []string
	for i := range typ.NumField() {
		member, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		all = append(all, member)
		if options != "omitempty" {
			always = append(always, member)
		}
		if must := typ.Field(i).Tag.Get("strict") == "required"; must == (options == "omitempty") {
			t.Errorf("%s: %s is required by strict reading: %t", name, member, must)
		}
	}
	slices.Sort(all)
	slices.Sort(always)
	known, required := wiretest.Properties(name)
	if !slices.Equal(all, known) {
		t.Errorf("%s: type has %v, schema has %v", name, all, known)
	}
	if !slices.Equal(always, required) {
		t.Errorf("%s: type always writes %v, schema requires %v", name, always, required)
	}
}

const (
	id     = "00112233445566778899aabbccddeeff"
	assign = `{"type":"task.assign","data":{"attempt_id":"` + id + `","epoch":1,"lease_ms":1,"operation_root":"` + id + `"TOKEN,"task":{"id":"` + id +
		`","namespace_id":"` + id + `","queue_id":"` + id + `","handler":"h","handler_version":"v1","payload_version":"v1","payload":{"a":null}KEY,` +
		`"recovery_safety":"IDEMPOTENT","deadline_ms":5,"attempt_number":1}}}`
	hello = `{"type":"hello","id":"1","data":{"process_id":"` + id + `","handlers":[{"name":"h","version":"v1"}],"queues":["` + id + `"],"capacity":4KEYS}}`
)

func keyed(key, token string) string {
	return strings.NewReplacer("KEY", key, "TOKEN", token).Replace(assign)
}

func TestSchemaJudgesFrames(t *testing.T) { // TEST-015
	const key = `,"concurrency_key":"object/42"`
	for _, c := range []struct {
		name   string
		sender string
		frame  string
		ok     bool
	}{
		{"hello without the flag", wiretest.Client, strings.Replace(hello, "KEYS", "", 1), true},
		{"hello with the flag", wiretest.Client, strings.Replace(hello, "KEYS", `,"concurrency_keys":true`, 1), true},
		{"hello with the flag as text", wiretest.Client, strings.Replace(hello, "KEYS", `,"concurrency_keys":"true"`, 1), false},
		{"hello with an unknown member", wiretest.Client, strings.Replace(hello, "KEYS", `,"concurrency":true`, 1), false},
		{"keyless dispatch", wiretest.Server, keyed("", ""), true},
		{"keyed dispatch", wiretest.Server, keyed(key, `,"concurrency_token":"7"`), true},
		{"token beyond float precision", wiretest.Server, keyed(key, `,"concurrency_token":"9007199254740993"`), true},
		{"largest token", wiretest.Server, keyed(key, `,"concurrency_token":"18446744073709551614"`), true},
		{"missing key", wiretest.Server, keyed("", `,"concurrency_token":"7"`), false},
		{"missing token", wiretest.Server, keyed(key, ""), false},
		{"numeric token", wiretest.Server, keyed(key, `,"concurrency_token":7`), false},
		{"zero token", wiretest.Server, keyed(key, `,"concurrency_token":"0"`), false},
		{"leading zero", wiretest.Server, keyed(key, `,"concurrency_token":"07"`), false},
		{"signed token", wiretest.Server, keyed(key, `,"concurrency_token":"+7"`), false},
		{"fractional epoch", wiretest.Client, `{"type":"task.start","id":"1","data":{"attempt_id":"` + id + `","epoch":1.5}}`, false},
		{"upper-case id", wiretest.Client, `{"type":"task.start","id":"1","data":{"attempt_id":"` + strings.ToUpper(id) + `","epoch":1}}`, false},
		{"start", wiretest.Client, `{"type":"task.start","id":"1","data":{"attempt_id":"` + id + `","epoch":1}}`, true},
		{"credit for a handler", wiretest.Client, `{"type":"credit","id":"1","data":{"slots":4,"limits":[{"handler":"h","slots":0}],"seen":0}}`, true},
		{"credit for a handler in a queue", wiretest.Client, `{"type":"credit","id":"1","data":{"slots":4,"limits":[{"queue_id":"` + id + `","handler":"h","handler_version":"v1","slots":1}]}}`, true},
		{"credit for a version of nothing", wiretest.Client, `{"type":"credit","id":"1","data":{"slots":4,"limits":[{"queue_id":"` + id + `","handler_version":"v1","slots":1}]}}`, false},
		{"credit for nothing", wiretest.Client, `{"type":"credit","id":"1","data":{"slots":4,"limits":[{"slots":1}]}}`, false},
		{"a worker's answer", wiretest.Client, `{"type":"task.started","id":"1","data":{}}`, false},
		{"no id", wiretest.Client, `{"type":"drain"}`, false},
		{"drain", wiretest.Client, `{"type":"drain","id":"1","data":{}}`, true},
		{"null result", wiretest.Client, `{"type":"task.finish","id":"1","data":{"attempt_id":"` + id + `","epoch":1,"receipt":"r","outcome":"SUCCEEDED","result":null}}`, false},
		{"result", wiretest.Client, `{"type":"task.finish","id":"1","data":{"attempt_id":"` + id + `","epoch":1,"receipt":"r","outcome":"SUCCEEDED","result":[null]}}`, true},
	} {
		if err := wiretest.Check(c.sender, []byte(c.frame)); (err == nil) != c.ok {
			t.Errorf("%s: schema says %v, want ok %v", c.name, err, c.ok)
		}
		if err := standardCheck(t, c.sender, c.frame); (err == nil) != c.ok {
			t.Errorf("%s: a validator of JSON Schema says %v, want ok %v", c.name, err, c.ok)
		}
	}
}

// No message is written in a form that strict reading refuses.
func TestStrictReadingTakesWhatTheTypesWrite(t *testing.T) {
	for _, kinds := range messages {
		for kind, data := range kinds {
			body, err := json.Marshal(data)
			if err != nil {
				t.Fatal(err)
			}
			body = []byte(strings.ReplaceAll(string(body), ":null", ":[]")) // empty lists; a payload is never missing
			again := reflect.New(reflect.TypeOf(data))
			if err := strictjson.Decode(body, again.Interface()); err != nil {
				t.Errorf("%s: %s: %v", kind, body, err)
			}
		}
	}
}
