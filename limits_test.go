package orbit

import (
	"strings"
	"testing"
	"time"
)

// Each bound of the interface, at the bound and one over it (LIMIT-001 … LIMIT-009,
// LIMIT-018). The field is the one that must be named; "" means accepted.
func TestBoundsOfASubmit(t *testing.T) {
	chars := func(n int) string { return quoted(strings.Repeat("𝒳", n)) } // 4 bytes, 2 UTF-16 units, 1 character
	ascii := func(n int) string { return quoted(strings.Repeat("a", n)) }
	several := func(members string) string { return `{"max_attempts":2,` + members + `}` }
	tests := []struct{ rule, member, value, field string }{
		{"LIMIT-001, SUB-009", "payload", text(262144), ""},
		{"LIMIT-001, SUB-009", "payload", text(262145), "payload"},
		{"LIMIT-001, SUB-009", "payload", " \t" + text(262144) + "\n ", ""},
		{"LIMIT-001, API-011", "payload", nested(31), ""},
		{"LIMIT-001, API-011", "payload", nested(32), "payload" + strings.Repeat("[0]", 31)},
		{"SUB-009", "payload", `0`, ""},
		{"SUB-009", "payload", `""`, ""},
		{"SUB-009", "payload", `false`, ""},
		{"SUB-009", "payload", `[]`, ""},
		{"SUB-009", "payload", `null`, "payload"},
		{"LIMIT-002, SUB-005", "handler", ascii(128), ""},
		{"LIMIT-002, SUB-005", "handler", ascii(129), "handler"},
		{"LIMIT-002, SUB-005", "handler", `""`, "handler"},
		{"LIMIT-002, SUB-006", "handler_version", ascii(64), ""},
		{"LIMIT-002, SUB-006", "handler_version", ascii(65), "handler_version"},
		{"LIMIT-002, SUB-007", "payload_version", ascii(32), ""},
		{"LIMIT-002, SUB-007", "payload_version", ascii(33), "payload_version"},
		{"LIMIT-003, LIMIT-018, SUB-010", "business_key", chars(191), ""},
		{"LIMIT-003, LIMIT-018, SUB-010", "business_key", chars(192), "business_key"},
		{"LIMIT-003, LIMIT-018, SUB-011, SUB-061", "concurrency_key", chars(191), ""},
		{"LIMIT-003, LIMIT-018, SUB-011, SUB-061", "concurrency_key", chars(192), "concurrency_key"},
		{"SUB-011, KEY-004", "concurrency_key", `""`, ""},
		{"SUB-011, KEY-004", "concurrency_key", `null`, "concurrency_key"},
		{"SUB-061", "concurrency_key", `" a"`, "concurrency_key"},
		{"LIMIT-004, SUB-012", "priority", `0`, ""},
		{"LIMIT-004, SUB-012", "priority", `9`, ""},
		{"LIMIT-004, SUB-012", "priority", `10`, "priority"},
		{"LIMIT-004, SUB-012", "priority", `18446744073709551616`, "priority"},
		{"LIMIT-006, SUB-017", "task_timeout_ms", `2592000000`, ""},
		{"LIMIT-006, SUB-017", "task_timeout_ms", `2592000001`, "task_timeout_ms"},
		{"LIMIT-007, SUB-020", "retry", `{"max_attempts":100}`, ""},
		{"LIMIT-007, SUB-020", "retry", `{"max_attempts":101}`, "retry.max_attempts"},
		{"LIMIT-007, SUB-021", "retry", `{"attempt_timeout_ms":86400000}`, ""},
		{"LIMIT-007, SUB-021", "retry", `{"attempt_timeout_ms":86400001}`, "retry.attempt_timeout_ms"},
		{"LIMIT-007, SUB-022", "retry", several(`"initial_delay_ms":30000`), ""},
		{"LIMIT-007, SUB-022", "retry", several(`"initial_delay_ms":30001`), "retry.initial_delay_ms"},
		{"LIMIT-007, SUB-023", "retry", several(`"max_delay_ms":9223372036854`), ""},
		{"LIMIT-007, SUB-023", "retry", several(`"max_delay_ms":9223372036855`), "retry.max_delay_ms"},
		{"SUB-025", "retry", `{}`, ""},
		{"SUB-025", "retry", `null`, "retry"},
		{"SUB-025", "retry", `[]`, "retry"},
		{"LIMIT-008, API-020", "available_at", `"2000-01-01T00:00:00Z"`, ""},
		{"LIMIT-008, API-020", "available_at", `"1999-12-31T23:59:59.999999Z"`, "available_at"},
		{"LIMIT-008, API-020", "start_deadline_at", `"9998-12-31T23:59:59.999999Z"`, ""},
		{"LIMIT-008, API-020", "start_deadline_at", `"9999-01-01T00:00:00Z"`, "start_deadline_at"},
		{"LIMIT-008, AMB-025", "available_at", `"2026-09-17T00:00:00.1234567Z"`, "available_at"},
		{"LIMIT-009, SUB-040", "payload", strings.Repeat("9", 256), ""},
		{"LIMIT-009, SUB-040", "payload", strings.Repeat("9", 257), "payload"},
		{"LIMIT-009, SUB-041", "payload", `1e308`, ""},
		{"LIMIT-009, SUB-041", "payload", `1e309`, "payload"},
		{"LIMIT-009, SUB-041", "payload", `0e309`, "payload"},
		{"LIMIT-009, SUB-041", "payload", `1e-308`, ""},
		{"LIMIT-009, SUB-041", "payload", `1e-309`, "payload"},
		{"LIMIT-009, SUB-042, AMB-017", "payload", `15e-308`, ""},
		{"LIMIT-009, SUB-042, AMB-017", "payload", `1.5e-308`, "payload"},
		{"LIMIT-009, SUB-043, SUB-044", "payload", `1.7976931348623157e308`, ""},
		{"LIMIT-009, SUB-043, SUB-044", "payload", `1.8e308`, "payload"},
		{"API-007", "Queue_ID", `"11111111111111111111111111111111"`, "Queue_ID"},
		{"API-007", "ſtart_deadline_at", `null`, `["\u017ftart_deadline_at"]`}, // U+017F folds to s
	}
	for _, test := range tests {
		if got := refusal(t, with(test.member, test.value)); got != test.field {
			t.Errorf("%s: %s = %.60s: refused for %q, want %q", test.rule, test.member, test.value, got, test.field)
		}
	}
}

// LIMIT-004 … LIMIT-007, LIMIT-010, LIMIT-011, LIMIT-013: the figures themselves.
func TestBoundsHaveTheirDocumentedValues(t *testing.T) {
	figures := map[string][2]any{
		"body":                        {MaxBodyBytes, 524288},
		"payload":                     {MaxPayloadBytes, 262144},
		"depth":                       {MaxDepth, 32},
		"idempotency key":             {MaxIdempotencyKey, 128},
		"task timeout":                {int64(MaxTaskTimeoutMS), int64(2592000000)},
		"default task timeout":        {DefaultTaskTimeoutMS, 86400000},
		"default attempt timeout":     {DefaultAttemptTimeoutMS, 30000},
		"default initial delay":       {DefaultInitialDelayMS, 1000},
		"default longest delay":       {DefaultMaxRetryDelayMS, 30000},
		"longest delay":               {int64(MaxRetryDelayMS), int64(9223372036854)},
		"attempts":                    {MaxAttempts, 100},
		"available_at in the past":    {AvailableAtTolerance, time.Second},
		"advantage of one priority":   {PriorityStep, 30 * time.Second},
		"retention of an idempotency": {IdempotencyRetention, 2160 * time.Hour},
		"reason":                      {MaxReason, 1024},
	}
	for name, f := range figures {
		if f[0] != f[1] {
			t.Errorf("%s is %v, want %v", name, f[0], f[1])
		}
	}
}
