package relay

import (
	"errors"
	"fmt"
	"testing"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

var classRow = outbox.Row{QueueID: "q", Handler: "h", Algorithm: orbit.DigestAlgorithm, Digest: orbit.Digest{1}}

func receipt(queue, handler, digest string) orbit.Answer {
	return orbit.Answer{Status: 201, ContentDigest: digest, Accepted: &orbit.Accepted{Task: orbit.Task{QueueID: queue, Handler: handler}}}
}

func refusal(status int, code string) orbit.Answer {
	return orbit.Answer{Status: status, Err: &orbit.APIError{Status: status, Code: code}}
}

func unreadable(status int) orbit.Answer {
	return orbit.Answer{Status: status, Unreadable: errors.New("no envelope")}
}

// REL-002…012 and 026, for one row.
func TestTheTableOfAnswersIsClosed(t *testing.T) {
	right, other := orbit.Digest{1}.String(), orbit.Digest{2}.String()
	tests := []struct {
		name string
		a    orbit.Answer
		want verdict
	}{
		{"receipt", receipt("q", "h", right), accepted},
		{"receipt for another queue", receipt("x", "h", right), mismatch},
		{"receipt for another handler", receipt("q", "x", right), mismatch},
		{"receipt with another digest", receipt("q", "h", other), mismatch},
		{"receipt with another algorithm", receipt("q", "h", "later-v2:"+other[len("orbit-json-v1:"):]), accepted},
		{"receipt with another algorithm for another queue", receipt("x", "h", "later-v2:"+other[len("orbit-json-v1:"):]), mismatch},
		{"receipt without digest", receipt("q", "h", ""), unknown},
		{"receipt with an unreadable digest", receipt("q", "h", "orbit-json-v1:zz"), unknown},
		{"400", refusal(400, orbit.CodeInvalidArgument), refused},
		{"413", refusal(413, orbit.CodeBodyTooLarge), refused},
		{"415", refusal(415, orbit.CodeUnsupportedMediaType), refused},
		{"409 conflict", refusal(409, orbit.CodeIdempotencyConflict), conflict},
		{"409 state", refusal(409, orbit.CodeStateConflict), needsPerson},
		{"403", refusal(403, orbit.CodePermissionDenied), needsPerson},
		{"404", refusal(404, orbit.CodeNotFound), needsPerson},
		{"401", refusal(401, orbit.CodeUnauthenticated), targetWrong},
		{"405", refusal(405, orbit.CodeInvalidArgument), foreign},
		{"429 queue", refusal(429, orbit.CodeQueueFull), queueFull},
		{"429 application", refusal(429, orbit.CodeApplicationFull), applicationFull},
		{"503", refusal(503, orbit.CodeUnavailable), unknown},
		{"no answer at all", orbit.Answer{}, unknown},
	}
	for _, test := range tests {
		if got := classify(&classRow, test.a); got != test.want {
			t.Errorf("%s: verdict %d, want %d", test.name, got, test.want)
		}
	}
}

func TestWithoutOrbitsEnvelopeNoStatusSettlesARow(t *testing.T) {
	for status := range 1000 {
		want := unknown
		switch {
		case status == 429:
			want = throttled
		case status >= 300 && status < 400, status == 401:
			want = targetWrong
		case status >= 400 && status < 500 && status != 408 && status != 425:
			want = foreign
		}
		if got := classify(&classRow, unreadable(status)); got != want {
			t.Errorf("status %d: verdict %d, want %d", status, got, want)
		}
	}
}

// REL-027.
func TestABatchAsAWholeSettlesNothing(t *testing.T) {
	for status := range 1000 {
		want := batchUnknown
		switch {
		case status == 429:
			want = batchThrottled
		case status == 400, status == 413, status == 415:
			want = batchApart
		case status >= 300 && status < 500 && status != 408 && status != 425:
			want = batchWrong
		}
		if got := classifyBatch(orbit.BatchAnswer{Status: status, Unreadable: errors.New("x")}); got != want {
			t.Errorf("status %d: verdict %d, want %d", status, got, want)
		}
	}
	if got := classifyBatch(orbit.BatchAnswer{Status: 200, Items: []orbit.Answer{{}}}); got != batchItems {
		t.Errorf("200 with items: verdict %d, want %d", got, batchItems)
	}
}

func TestForbiddenForSeveralQueuesIsTheCredentialsFault(t *testing.T) {
	forbidden, full := refusal(403, orbit.CodePermissionDenied), refusal(429, orbit.CodeQueueFull)
	rows := func(queues ...string) (all []*entry) {
		for _, q := range queues {
			all = append(all, &entry{row: outbox.Row{QueueID: q}})
		}
		return all
	}
	tests := []struct {
		rows  []*entry
		items []orbit.Answer
		want  bool
	}{
		{rows("a", "b"), []orbit.Answer{forbidden, forbidden}, true},
		{rows("a", "a"), []orbit.Answer{forbidden, forbidden}, false},
		{rows("a", "b"), []orbit.Answer{forbidden, full}, false},
		{rows("a", "b"), []orbit.Answer{forbidden, unreadable(403)}, false},
	}
	for i, test := range tests {
		if got := allForbidden(test.rows, test.items); got != test.want {
			t.Errorf("%d: %t, want %t", i, got, test.want)
		}
	}
}

func TestConfigNamesEveryRuleThatItBreaks(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Fatalf("the zero value is refused: %v", err)
	}
	bad := Config{Lease: 1, SendTimeout: -1, StopTimeout: -2, Senders: 65, BatchRows: 101, BufferBytes: 1, Poll: 1, RetryFirst: 2, RetryMost: 1, PauseFirst: 2, PauseMost: 1, MaxRetryAfter: -1, Name: string(make([]byte, 129))}
	err := bad.Validate()
	for _, field := range []string{"Lease", "SendTimeout", "StopTimeout", "Senders", "BatchRows", "BufferBytes", "Poll", "RetryFirst", "PauseFirst", "MaxRetryAfter", "Name"} {
		if !containsField(err, field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

func containsField(err error, field string) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return false
	}
	for _, e := range joined.Unwrap() {
		var name string
		if n, _ := fmt.Sscanf(e.Error(), "relay: %s", &name); n == 1 && name == field {
			return true
		}
	}
	return false
}

func TestBackOffIsDrawnFromZeroToTheIntervalAndNeverEnds(t *testing.T) {
	const first, most = 100, 800 // nanoseconds
	for attempts, interval := range []int{100, 200, 400, 800, 800, 800} {
		low, high := most, 0
		for range 2000 {
			d := int(delayAfter(attempts, first, most))
			low, high = min(low, d), max(high, d)
		}
		if low > interval/10 || high < interval*9/10 || high > interval+1 {
			t.Errorf("after %d attempts delays lie in %d..%d, want all of 0..%d", attempts, low, high, interval)
		}
	}
	if d := delayAfter(1<<30, first, most); d < 0 || d > most+1 {
		t.Errorf("delay after very many attempts = %d", d)
	}
}
