package wire

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestMessagesThatWriteThemselvesAreWrittenLikeAllOthers(t *testing.T) { // REF-WRK-002
	const odd = "a \"quoted\" <word> & \\ \u2028 \u00e9 \x01 \xff"
	for _, m := range []Appender{
		Attempt{"0123", 1}, Attempt{odd, 1<<64 - 1},
		Started{}, Started{AttemptID: "a", Epoch: 2, LeaseMS: 3, TimeoutMS: 4, CancelRequested: true},
		Finish{}, Finish{"a", 1, odd, OutcomeFailed, true, nil, odd}, Finish{Receipt: "r", Outcome: OutcomeSucceeded, Result: json.RawMessage(`{"a":[1]}`)},
		Finished{}, Finished{"a", 1, FinishRecorded, "SUCCEEDED"},
	} {
		want, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.AppendJSON([]byte("x")); string(got[1:]) != string(want) {
			t.Errorf("%T is written\n%s, want\n%s", m, got[1:], want)
		}
		for _, e := range []Envelope{{TypeStart, "1", "", want}, {TypeStarted, "", odd, want}, {TypeAssign, odd, "2", want}} {
			want, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if got := append(append(OpenFrame(nil, e.Type, e.ID, e.Ref), e.Data...), '}'); !bytes.Equal(got, want) {
				t.Errorf("a frame is written\n%s, want\n%s", got, want)
			}
		}
	}
}

// Whatever is split is what a reader of JSON finds, if the data are JSON. What is not
// spelled as our peers spell it is left to that reader.
func TestOnlyFramesOfOneSpellingAreSplit(t *testing.T) { // API-002, TEST-015
	for text, split := range map[string]bool{
		`{"type":"task.start","id":"1","data":{"attempt_id":"a","epoch":1}}`: true,
		`{"type":"task.started","ref":"x!","data":{}}`:                       true,
		`{"type":"error","data":{"code":"}"}}`:                               true,
		`{"type":"drain","id":"1","ref":"2","data": [1,{}] }`:                true,
		`{"type":"drain","id":"1","data":{},"id":"2"}`:                       true, // its data are no JSON
		`{"type":"drain","id":"1","data":}`:                                  false,
		`{"type":"drain","id":"1"}`:                                          false,
		`{"type":"drain","ref":"1","id":"2","data":{}}`:                      false,
		`{"type":"drain","id":"1","data":{}`:                                 true, // the same
		`{"type":"drain","id":"1","data":{}} `:                               false,
		`{"type":"drain","id":"\u0031","data":{}}`:                           false,
		`{"type":"drain","id":"é","data":{}}`:                                false,
		`{"type":"drain","id":"a b","data":{}}`:                              false,
		`{"type":"drain","id":"1,"data":{}}`:                                 false,
		`{ "type":"drain","id":"1","data":{}}`:                               false,
		`{"id":"1","type":"drain","data":{}}`:                                false,
		`{"type":"jump","id":"1","data":{}}`:                                 false,
		`{"type":"drain","id":"1","extra":1,"data":{}}`:                      false,
		`{"type":"`: false, `{"type":"drain`: false, `{"type":`: false, ``: false, `{"type":"drain","data":`: false,
	} {
		e, ok := Split([]byte(text))
		if ok != split {
			t.Errorf("%s: split = %v, want %v", text, ok, split)
		}
		var want Envelope
		if !ok || !json.Valid(e.Data) {
			continue
		}
		if err := json.Unmarshal([]byte(text), &want); err != nil || e.Type != want.Type || e.ID != want.ID || e.Ref != want.Ref ||
			!bytes.Equal(bytes.TrimSpace(e.Data), want.Data) {
			t.Errorf("%s is split into %+v, want %+v, %v", text, e, want, err)
		}
	}
}
