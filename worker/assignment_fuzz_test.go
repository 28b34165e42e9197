package worker

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/orbitkit/orbit"
)

// Whatever a server sends, what passes keeps the pair of key and token.
func FuzzReadAssign(f *testing.F) {
	id := strings.Repeat("0", 31) + "5"
	legal := `{"attempt_id":"` + id + `","epoch":1,"lease_ms":1,"operation_root":"` + id + `","concurrency_token":"18446744073709551615","task":{"id":"` + id +
		`","namespace_id":"` + id + `","queue_id":"` + id + `","handler":"h","handler_version":"1","payload_version":"1","payload":[1,{"a":null}],` +
		`"concurrency_key":"k","recovery_safety":"IDEMPOTENT","deadline_ms":18446744073709551615,"attempt_number":1}}`
	for _, c := range []struct{ old, new string }{
		{"", ""},
		{`"18446744073709551615"`, `"007"`}, {`"18446744073709551615"`, `7`}, {`"18446744073709551615"`, `"0"`}, {`"18446744073709551615"`, `""`},
		{`"k"`, `""`}, {`"k"`, `" k"`}, {`"k"`, `"\ud800"`}, {`"k"`, `null`}, {`[1,{"a":null}]`, `1e309`}, {`"lease_ms":1`, `"lease_ms":1e3`},
	} {
		f.Add([]byte(`{"type":"task.assign","data":` + strings.Replace(legal, c.old, c.new, 1) + `}`))
	}
	c := &Conn{registration: Registration{Handlers: []Handler{{Name: "h", Version: "1"}}, Queues: []string{id}, ConcurrencyKeys: true}}
	f.Fuzz(func(t *testing.T, text []byte) {
		frame, err := decodeFrame(text)
		if err != nil {
			return
		}
		a, err := c.readAssign(frame.Data)
		if err != nil {
			return
		}
		if (a.Task.ConcurrencyKey == "") != (a.ConcurrencyToken == 0) {
			t.Errorf("key %q with token %d passes", a.Task.ConcurrencyKey, a.ConcurrencyToken)
		}
		if a.ConcurrencyToken != 0 && !strings.Contains(string(text), strconv.FormatUint(a.ConcurrencyToken, 10)) && !strings.Contains(string(text), `\u`) {
			t.Errorf("token %d is not what was sent", a.ConcurrencyToken)
		}
		if orbit.ValidateConcurrencyKey(a.Task.ConcurrencyKey) != nil || !utf8.ValidString(a.Task.ConcurrencyKey) || a.Lease < 0 {
			t.Errorf("assignment %+v passes", a)
		}
	})
}
