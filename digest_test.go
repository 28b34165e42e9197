package orbit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/internal/strictjson"
)

// frozenVectors are the golden vectors with the first half of their files'
// SHA-256. A line may be added; none may ever change, for digests are stored for
// 90 days and compared with those of later versions (IDEM-005, IDEM-022).
var frozenVectors = map[string]string{
	"01-documented-example":                     "e65bcaa3a23c3651ace14c9b4796d4a9",
	"02-documented-keyed-example":               "a61dc04d721da5ebe01066fcc8ced09e",
	"03-empty-object-payload":                   "2eb892977f58197bd3ba36f91e2f4953",
	"04-empty-array-payload":                    "963effdede67505f1c3455ee4cd17ae4",
	"05-true-payload":                           "3fdbd579880396b6649639ca9f6eb6b7",
	"06-false-payload":                          "72f941322e90c06352c398229811a583",
	"07-text-payload":                           "d6b04c873c94c909e317969161609a35",
	"08-empty-text-payload":                     "dc41045c75b659cc51310b85a32960cb",
	"09-number-one":                             "966b93b87795112d9f795b3f89b4575e",
	"10-number-one-as-fraction":                 "7cf04d3aea7e82e94357c9bb7501bc26",
	"11-number-one-as-power":                    "458bdd91204bed19df92df50a11403cd",
	"12-number-zero-with-sign-and-exponent":     "8937404d6cfeb02f8a3b062d744aaa8d",
	"13-number-trailing-zeros":                  "c211e0064ce76b135bcf39ff597a916a",
	"14-number-beyond-2-53":                     "2e2f0889407b26de836c6c68aacc28e6",
	"15-number-edges":                           "cd12e0bee1596b9b0ea0671ad4f09ee1",
	"16-number-smallest-exponent-from-fraction": "6a179533b3ac0215db399386c656f369",
	"17-number-256-characters":                  "443212ee2fa1ed796f5124fd361b9d53",
	"18-null-inside-payload":                    "d49ccf155cd042823863ec892af7bd5b",
	"19-names-in-other-order":                   "2e9d8e350de7f5b1ab31be6d6ec3a67d",
	"20-names-by-bytes":                         "d5f9c156e51c410dc3c7bbb2a86637a4",
	"21-names-escaped":                          "d2feef6a29e0cf8046d6e193fd74a2c5",
	"22-text-escapes":                           "d55cdae44288ce3c3389875cf8a066f6",
	"23-text-no-normalisation":                  "586eab5c36dfc546283fcfab7e49f22a",
	"24-html-characters":                        "6d8714ae46b5644ce615af648aa47613",
	"25-white-space":                            "36c95fa35c6c4f45088281b57f029920",
	"26-order-of-elements":                      "7c350dcb99c33dea4534f4b6aeb53297",
	"27-explicit-defaults":                      "e9caaa4e5b7193b7154fa5de1c5b28be",
	"28-several-attempts":                       "40b4f7bdee7f7e67faad1b0e0d793432",
	"29-whole-retry-policy":                     "75654dea5dea21ab79f219eba660e917",
	"30-one-attempt-with-delays":                "1352b592f908f739811b0f61ef7aaf93",
	"31-times-in-utc":                           "ed0c4895bdc32a6935d8698d1021d81b",
	"32-times-with-offset":                      "844566c657e0d644eb3161007cd67de4",
	"33-time-edges":                             "bbfb235cf5aaa28804eaa7d7b8841b67",
	"34-priority":                               "cf0f5ec556732d96e18c2b16921f3d68",
	"35-idempotent-with-timeout":                "86f5a33e7ba5303141fedf1fee648856",
	"36-business-key-with-blanks":               "ff2788fb2db31307c18610967fd7269c",
	"37-concurrency-key-composed":               "34fab489bcd43194b104fd0e93743791",
	"38-concurrency-key-decomposed":             "f08337d012200c648cf189f8d5120a11",
	"39-concurrency-key-zero-width":             "556b4f27707f62e3c6288aa5fda32d8f",
	"40-everything":                             "0b0d177876a50c7812bd55849df3e729",
}

type vector struct {
	Body      string `json:"body"`
	Canonical string `json:"canonical"`
	Digest    string `json:"digest"`
}

func loadVectors(t *testing.T) map[string]vector {
	t.Helper()
	files, err := filepath.Glob("testdata/digest/*.json")
	if err != nil {
		t.Fatal(err)
	}
	vectors := make(map[string]vector)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		if got := hex.EncodeToString(sum[:16]); got != frozenVectors[name] {
			t.Errorf("vector %s has changed: sum %s, frozen %q", name, got, frozenVectors[name])
		}
		var v vector
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		vectors[name] = v
	}
	return vectors
}

func TestGoldenVectorsAreAllThereAndUnchanged(t *testing.T) {
	have := slices.Sorted(maps.Keys(loadVectors(t)))
	want := slices.Sorted(maps.Keys(frozenVectors))
	if !slices.Equal(have, want) || len(have) < 30 {
		t.Fatalf("vectors %q, frozen %q", have, want)
	}
}

func TestDigestsMatchTheGoldenVectors(t *testing.T) {
	for name, v := range loadVectors(t) {
		s, err := ParseSubmission([]byte(v.Body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		payload, err := strictjson.AppendCanonical(nil, s.Request.Payload, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Request.appendCanonical(nil, payload); string(got) != v.Canonical {
			t.Errorf("%s: canonical text\n%s\nwant\n%s", name, got, v.Canonical)
		}
		if got := s.Digest.String(); got != v.Digest {
			t.Errorf("%s: digest %s, want %s", name, got, v.Digest)
		}
	}
}

// withMembers is a valid body with some members set to other texts; an empty text
// leaves the member out.
func withMembers(members map[string]string) []byte {
	all := map[string]string{
		"queue_id": `"11111111111111111111111111111111"`, "handler": `"file.convert"`,
		"handler_version": `"v1"`, "payload_version": `"v1"`, "payload": `{"a":1}`,
	}
	maps.Copy(all, members)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] != "" {
			out = append(out, `"`+name+`":`+all[name])
		}
	}
	return []byte("{" + strings.Join(out, ",") + "}")
}

func with(name, text string) []byte { return withMembers(map[string]string{name: text}) }

func digestOfBody(t *testing.T, body []byte) Digest {
	t.Helper()
	s, err := ParseSubmission(body)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return s.Digest
}

// TEST-041, IDEM-007, IDEM-008, IDEM-009.
// SUB-025.
func TestEqualContentHasEqualDigests(t *testing.T) {
	groups := map[string][][]byte{
		"Numbers":       {with("payload", `1`), with("payload", `1.0`), with("payload", `1e0`), with("payload", `10e-1`), with("payload", `0.1E+1`)},
		"Zero":          {with("payload", `0`), with("payload", `-0`), with("payload", `0.00`), with("payload", `0e5`)},
		"NumbersInside": {with("payload", `{"x":[100]}`), with("payload", `{"x":[1e2]}`)},
		"MemberOrder":   {with("payload", `{"a":1,"b":{"c":2,"d":3}}`), with("payload", `{"b":{"d":3,"c":2},"a":1}`)},
		"WhiteSpace":    {with("payload", `{"a":[1,2]}`), with("payload", "\n{ \"a\" :\t[1 , 2]}\r\n ")},
		"Escapes":       {with("payload", `{"a":"a/é"}`), with("payload", `{"\u0061":"\u0061\/\u00e9"}`)},
		"TaskTimeout":   {with("x", ""), with("task_timeout_ms", `0`), with("task_timeout_ms", `86400000`)},
		"Retry": {with("x", ""), with("retry", `{}`), with("retry", `{"max_attempts":0}`), with("retry", `{"max_attempts":1}`),
			with("retry", `{"attempt_timeout_ms":30000,"initial_delay_ms":0,"max_delay_ms":0}`)},
		"RetrySeveral": {with("retry", `{"max_attempts":2}`),
			with("retry", `{"max_attempts":2,"initial_delay_ms":1000,"max_delay_ms":30000,"attempt_timeout_ms":30000}`)},
		"ConcurrencyKey":  {with("x", ""), with("concurrency_key", `""`)},
		"BusinessKey":     {with("x", ""), with("business_key", `""`)},
		"Priority":        {with("x", ""), with("priority", `0`)},
		"RecoverySafety":  {with("x", ""), with("recovery_safety", `"RECONCILE_ONLY"`)},
		"NoAvailableAt":   {with("x", ""), with("available_at", `null`)},
		"NoStartDeadline": {with("x", ""), with("start_deadline_at", `null`)},
		"Times": {with("available_at", `"2026-09-17T00:00:00Z"`), with("available_at", `"2026-09-17T00:00:00.000Z"`),
			with("available_at", `"2026-09-17T05:45:00+05:45"`), with("available_at", `"2026-09-16T20:30:00.000000-03:30"`),
			with("available_at", `"2026-09-17T00:00:00-00:00"`)},
	}
	for name, bodies := range groups {
		want := digestOfBody(t, bodies[0])
		for _, body := range bodies[1:] {
			if got := digestOfBody(t, body); got != want {
				t.Errorf("%s: %s has another digest than %s", name, body, bodies[0])
			}
		}
	}
}

// TEST-041, IDEM-010, KEY-005, KEY-006.
// API-029, SUB-044.
func TestDifferentContentHasDifferentDigests(t *testing.T) {
	bodies := [][]byte{
		with("x", ""),
		with("queue_id", `"11111111111111111111111111111112"`),
		with("handler", `"file.Convert"`),
		with("handler_version", `"v2"`),
		with("payload_version", `"v2"`),
		with("payload", `1`), with("payload", `"1"`), with("payload", `"1e0"`), with("payload", `[1]`), with("payload", `true`),
		with("payload", `[1,2]`), with("payload", `[2,1]`), with("payload", `{}`), with("payload", `[]`), with("payload", `""`),
		with("payload", `{"a":null}`), with("payload", `[null]`),
		with("payload", `9007199254740992`), with("payload", `9007199254740993`), // one float64
		with("payload", `0.1`), with("payload", `0.10000000000000001`), // one float64
		with("payload", `1e-308`), with("payload", `-1`),
		with("payload", `"\u00e9"`), with("payload", `"e\u0301"`),
		with("business_key", `"a"`), with("business_key", `"a "`),
		with("concurrency_key", `"a"`), with("concurrency_key", `"A"`),
		with("concurrency_key", `"\u00c5"`), with("concurrency_key", `"A\u030a"`), with("concurrency_key", `"\u200b"`),
		with("priority", `1`), with("priority", `9`),
		with("available_at", `"2026-09-17T00:00:00Z"`), with("available_at", `"2026-09-17T00:00:00.000001Z"`),
		with("start_deadline_at", `"2026-09-17T00:00:00Z"`),
		with("task_timeout_ms", `86400001`),
		with("recovery_safety", `"IDEMPOTENT"`),
		with("retry", `{"max_attempts":2}`), with("retry", `{"attempt_timeout_ms":30001}`),
		with("retry", `{"max_delay_ms":1}`), with("retry", `{"initial_delay_ms":1,"max_delay_ms":1}`),
	}
	seen := make(map[Digest][]byte)
	for _, body := range bodies {
		d := digestOfBody(t, body)
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s have one digest", body, other)
		}
		seen[d] = body
	}
}

func TestDigestTextReadsBack(t *testing.T) {
	want := digestOfBody(t, with("x", ""))
	algorithm, got, err := ParseDigest(want.String())
	if algorithm != DigestAlgorithm || got != want || err != nil {
		t.Fatalf("ParseDigest(%s) = %s, %s, %v", want, algorithm, got, err)
	}
	other := "orbit-json-v2:" + strings.Repeat("0", 64)
	if algorithm, _, err := ParseDigest(other); algorithm != "orbit-json-v2" || err != nil {
		t.Fatalf("digest of another algorithm = %q, %v", algorithm, err)
	}
	for _, text := range []string{"", ":", "orbit-json-v1", strings.Repeat("0", 64), "orbit-json-v1:00", "orbit-json-v1:" + strings.Repeat("A", 64),
		other + "0", ":" + strings.Repeat("0", 64), "a b:" + strings.Repeat("0", 64)} {
		if _, _, err := ParseDigest(text); err == nil {
			t.Errorf("ParseDigest(%q) was accepted", text)
		}
	}
}
