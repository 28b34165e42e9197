package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/orbitkit/orbit"
)

// awkward are characters on both sides of a rule: controls, the blanks of Unicode, what
// only looks like one, line breaks, and characters of one to four bytes.
var awkward = []rune("\x00\x01\t\n\v\f\r \x1f!~\x7f\u0080\u0085\u009f\u00a0\u1680\u180e\u2000\u200a\u200b\u200d\u2028\u2029\u202f\u205f\u3000\ufeffaZ09_.:-é中\U0001f600")

// texts are short texts of such characters, and texts around a limit.
func texts(limit int) *rapid.Generator[string] {
	short := rapid.StringOfN(rapid.SampledFrom(awkward), 0, 4, -1)
	long := rapid.Custom(func(t *rapid.T) string {
		filler := rapid.SampledFrom([]string{"a", "é", "\U0001f600"}).Draw(t, "filler")
		return short.Draw(t, "head") + strings.Repeat(filler, limit-rapid.IntRange(0, 9).Draw(t, "less")) + short.Draw(t, "tail")
	})
	return rapid.OneOf(short, long)
}

// The schemas say what the parsers do, character by character: SUB-008, SUB-010, SUB-011,
// IDEM-001, CAN-005, CAN-006, API-033, LIMIT-002, LIMIT-003, LIMIT-010, LIMIT-013,
// LIMIT-018, AMB-015.
func TestSchemasOfTextsAgreeWithTheParsers(t *testing.T) {
	d := openapi(t)
	command := func(member string) func(string) error {
		return func(text string) error {
			body := map[string]string{"expected_revision": "1", "reason": "r"}
			body[member] = text
			encoded, err := json.Marshal(body)
			if err != nil {
				return err
			}
			_, _, err = orbit.ParseCancel(encoded)
			return err
		}
	}
	for _, c := range []struct {
		schema string
		limit  int
		parse  func(string) error
	}{
		{"IdempotencyKey", orbit.MaxIdempotencyKey, orbit.ValidateIdempotencyKey},
		{"ConcurrencyKey", orbit.MaxConcurrencyKey, orbit.ValidateConcurrencyKey},
		{"BusinessKey", orbit.MaxBusinessKey, orbit.ValidateBusinessKey},
		{"Reason", orbit.MaxReason, command("reason")},
		{"Handler", orbit.MaxHandler, submitted("handler")},
		{"HandlerVersion", orbit.MaxHandlerVersion, submitted("handler_version")},
		{"PayloadVersion", orbit.MaxPayloadVersion, submitted("payload_version")},
	} {
		t.Run(c.schema, func(t *testing.T) {
			schema := d.schema(reference(c.schema))
			for r := range rune(0x3100) { // all blanks and controls lie below
				if r > 0x300 && !unicode.IsSpace(r-1) && !unicode.IsSpace(r) && !unicode.IsSpace(r+1) {
					continue
				}
				for _, text := range []string{string(r), string(r) + "a", "a" + string(r), "a" + string(r) + "a"} {
					agree(t, text, schema.Validate(text), c.parse(text))
				}
			}
			rapid.Check(t, func(t *rapid.T) {
				text := texts(c.limit).Draw(t, "text")
				agree(t, text, schema.Validate(text), c.parse(text))
			})
		})
	}
	name := d.schema(reference("QueueName"))
	t.Run("QueueName", func(t *testing.T) { // REF-QRES-002
		rapid.Check(t, func(t *rapid.T) {
			text := texts(orbit.MaxQueueName/4).Draw(t, "text") // the limit is in bytes, which a schema cannot say
			if len(text) <= orbit.MaxQueueName {
				agree(t, text, name.Validate(text), orbit.ValidateQueueName(text))
			}
		})
	})
}

// CAN-005, LIMIT-013.
func TestSchemaOfRevisionsAgreesWithTheParser(t *testing.T) {
	schema := openapi(t).schema(reference("Revision"))
	parse := func(text string) error {
		n, err := orbit.ParseDecimal(text)
		if err == nil && n == 0 {
			err = fmt.Errorf("zero")
		}
		return err
	}
	for _, text := range []string{"", "0", "1", "01", "+1", "-1", "1.0", "1e3", " 1", "18446744073709551615", "18446744073709551616", "18446744073709551620",
		"18446744073709551700", "18446744073709552000", "18446744073709560000", "18446744073710000000", "9999999999999999999", "20000000000000000000", "100000000000000000000"} {
		agree(t, text, schema.Validate(text), parse(text))
	}
	rapid.Check(t, func(t *rapid.T) {
		const largest = "18446744073709551615"
		text := []byte(largest)
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			text[rapid.IntRange(0, len(text)-1).Draw(t, "at")] = byte('0' + rapid.IntRange(0, 9).Draw(t, "digit"))
		}
		drawn := string(text[rapid.IntRange(0, 1).Draw(t, "cut"):])
		agree(t, drawn, schema.Validate(drawn), parse(drawn))
	})
}

// API-033.
func TestSchemaOfTraceparentAgreesWithTheParser(t *testing.T) {
	schema := openapi(t).schema(reference("Traceparent"))
	const good = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{
			good, "01" + good[2:], "ff" + good[2:], good + "-", good + "-more", "01" + good[2:] + "-more", "01" + good[2:] + "more",
			"00-" + strings.Repeat("0", 32) + good[35:], good[:36] + strings.Repeat("0", 16) + "-01", "01" + good[2:] + "-" + strings.Repeat("x", 72),
			"01" + good[2:] + "-" + strings.Repeat("x", 73), "01" + good[2:] + "-a b",
		}).Draw(t, "form")
		if rapid.Bool().Draw(t, "spoil") {
			at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
			text = text[:at] + rapid.SampledFrom([]string{"", "-", "A", "g", "0", " ", "f"}).Draw(t, "by") + text[at+1:]
		}
		agree(t, text, schema.Validate(text), orbit.ValidateTraceparent(text))
	})
}

// API-019, API-020, LIST-007, LIMIT-008: what is a time is one for the schema too. The
// schema cannot know the length of months and the year in UTC.
func TestSchemaOfTimesTakesWhatTheParserTakes(t *testing.T) {
	schema := openapi(t).schema(reference("TimeIn"))
	parse := func(text string) error { _, err := orbit.ParseTime(text); return err }
	for _, text := range []string{"2026-09-17T00:00:00Z", "2000-01-01T00:00:00Z", "1999-12-31T23:30:00-00:30", "9998-12-31T23:59:59.999999Z",
		"9999-01-01T00:30:00+00:31", "2026-09-17T00:00:00.1+23:59", "2024-02-29T12:00:00.000001-23:59"} {
		if err := parse(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		agree(t, text, schema.Validate(text), parse(text))
	}
	for _, text := range []string{"", "2026-09-17", "2026-09-17 00:00:00Z", "2026-09-17t00:00:00Z", "2026-09-17T00:00:00z", "2026-09-17T00:00:00", "2026-13-17T00:00:00Z",
		"2026-00-17T00:00:00Z", "2026-01-32T00:00:00Z", "2026-09-17T24:00:00Z", "2026-09-17T00:60:00Z", "2026-09-17T00:00:60Z", "2026-09-17T00:00:00.Z",
		"2026-09-17T00:00:00.1234567Z", "2026-09-17T00:00:00,1Z", "2026-09-17T00:00:00+24:00", "2026-09-17T00:00:00+0800", "1998-09-17T00:00:00Z", "10000-01-01T00:00:00Z"} {
		agree(t, text, schema.Validate(text), parse(text))
	}
}

// submitted parses a submit whose member is text.
func submitted(member string) func(string) error {
	return func(text string) error {
		body := map[string]any{"queue_id": strings.Repeat("0", 32), "handler": "h", "handler_version": "v", "payload_version": "v", "payload": 1}
		body[member] = text
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		_, err = orbit.ParseSubmission(encoded)
		return err
	}
}

// SUB-012, SUB-017, SUB-018, SUB-020 … SUB-023, LIMIT-004 … LIMIT-007: numbers at and
// beyond their limits, nulls and unknown members.
func TestSchemaOfASubmitAgreesWithTheParser(t *testing.T) {
	schema := openapi(t).schema(reference("SubmitTask"))
	parse := func(body string) error { _, err := orbit.ParseSubmission([]byte(body)); return err }
	for _, members := range []string{
		``, `"priority":0`, `"priority":9`, `"priority":10`, `"priority":-1`, `"priority":"1"`, `"priority":null`,
		`"task_timeout_ms":0`, `"task_timeout_ms":2592000000`, `"task_timeout_ms":2592000001`, `"task_timeout_ms":18446744073709551616`,
		`"recovery_safety":"IDEMPOTENT"`, `"recovery_safety":"RECONCILE_ONLY"`, `"recovery_safety":""`, `"recovery_safety":"idempotent"`, `"recovery_safety":null`,
		`"retry":{}`, `"retry":null`, `"retry":[]`, `"retry":{"more":1}`, `"retry":{"max_attempts":100}`, `"retry":{"max_attempts":101}`,
		`"retry":{"max_attempts":2,"max_delay_ms":9223372036854}`, `"retry":{"max_attempts":2,"max_delay_ms":9223372036855}`,
		`"available_at":null`, `"available_at":"2026-09-17T00:00:00Z"`, `"available_at":1`, `"start_deadline_at":null`, `"start_deadline_at":"soon"`,
		`"business_key":""`, `"business_key":null`, `"concurrency_key":""`, `"concurrency_key":null`, `"namespace_id":"x"`, `"Priority":1`, `"queue":"x"`,
	} {
		body := withPayload(members, `{}`)
		agree(t, body, validate(schema, []byte(body)), parse(body))
	}
	for _, payload := range []string{`null`, `{}`, `[]`, `""`, `0`, `false`, `[null]`, `{"a":null}`, `9007199254740993`, `1.7976931348623157e308`} {
		body := withPayload(``, payload)
		agree(t, body, validate(schema, []byte(body)), parse(body))
	}
}

func withPayload(members, payload string) string {
	if members != "" {
		members += ","
	}
	return `{"queue_id":"` + strings.Repeat("0", 32) + `","handler":"h","handler_version":"v","payload_version":"v",` + members + `"payload":` + payload + `}`
}

// LIST-008: as the server reads it.
func TestSchemaOfLimit(t *testing.T) {
	d := openapi(t)
	limit := d.value(d.follow(map[string]any{"$ref": "#/components/parameters/Limit"})["schema"])
	for text, want := range map[string]bool{"1": true, "100": true, "0": false, "101": false, "-1": false, "ten": false, "1.5": false, "": false} {
		if got := limit.check([]string{text}, true) == nil; got != want {
			t.Errorf("limit=%s: %v, want %v", text, got, want)
		}
	}
}

func reference(schema string) map[string]any {
	return map[string]any{"$ref": "#/components/schemas/" + schema}
}

// agree fails if schema and parser judge text differently.
func agree(t interface{ Errorf(string, ...any) }, text string, schema, parser error) {
	if (schema == nil) != (parser == nil) {
		t.Errorf("%q: schema: %v; parser: %v", text, schema, parser)
	}
}
