package outbox_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orbitkit/orbit"
	"github.com/orbitkit/orbit/outbox"
)

func TestKeyIsForEver(t *testing.T) {
	long := strings.Repeat("x", 129)
	tests := []struct {
		parts []string
		want  string
	}{
		{[]string{"order", "1042", "reserve-stock"}, "order:1042:reserve-stock"},
		{[]string{"a:b", "c"}, "a%3Ab:c"},
		{[]string{"a", "b:c"}, "a:b%3Ac"},
		{[]string{"50 %", "~"}, "50%20%25:%7E"},
		{[]string{"é\x00"}, "%C3%A9%00"},
		{[]string{strings.Repeat("x", 128)}, strings.Repeat("x", 128)},
		{[]string{long}, strings.Repeat("x", 63) + "~0ec9eb33e74510bcdd1f2ea55206e82f21649c5c2becbf2b433eb475b34c01bd"},
	}
	for _, test := range tests {
		got, err := outbox.Key(test.parts...)
		if err != nil || got != test.want {
			t.Errorf("Key(%q) = %q, %v; want %q", test.parts, got, err, test.want)
		}
	}
}

func TestKeyRefusesNothing(t *testing.T) {
	for _, parts := range [][]string{{}, {""}, {"order", "", "x"}} {
		var invalid *orbit.InvalidArgumentError
		if _, err := outbox.Key(parts...); !errors.As(err, &invalid) {
			t.Errorf("Key(%q) = %v, want an InvalidArgumentError", parts, err)
		}
	}
}

// OUT-019: every key is valid, and different parts never share one.
func TestKeysAreValidAndApart(t *testing.T) {
	part := rapid.OneOf(
		rapid.StringMatching(`[a:%~2-5 ]{1,6}`), rapid.StringMatching(`(x:|y~|%3A){20,60}`),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 80), func(b []byte) string { return string(b) }),
	)
	list := rapid.SliceOfN(part, 1, 4)
	rapid.Check(t, func(t *rapid.T) {
		a := list.Draw(t, "a")
		b := list.Draw(t, "b")
		if rapid.Bool().Draw(t, "cut elsewhere") {
			b = strings.FieldsFunc(strings.Join(a, ":"), func(r rune) bool { return r == ':' })
			b = append(b, list.Draw(t, "more")...)[:max(1, len(b))]
		}
		ka, err := outbox.Key(a...)
		if err != nil {
			t.Fatal(err)
		}
		if err := orbit.ValidateIdempotencyKey(ka); err != nil {
			t.Fatalf("Key(%q) = %q: %v", a, ka, err)
		}
		kb, err := outbox.Key(b...)
		if err != nil {
			t.Fatal(err)
		}
		same := len(a) == len(b)
		for i := 0; same && i < len(a); i++ {
			same = a[i] == b[i]
		}
		if (ka == kb) != same {
			t.Fatalf("Key(%q) = %q, Key(%q) = %q", a, ka, b, kb)
		}
	})
}
