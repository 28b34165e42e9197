package guardtest_test

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/resourceguard"
	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

func TestSoundGuardPasses(t *testing.T) {
	open := func(context.Context) (guardtest.Store, error) { return newToy(""), nil }
	guardtest.Run(t, open)
	if problems := guardtest.Check(t.Context(), open); len(problems) > 0 {
		t.Errorf("problems of a sound guard: %v", problems)
	}
}

func TestSoundGuardThatKeepsRaisePasses(t *testing.T) {
	guardtest.Run(t, func(context.Context) (guardtest.Store, error) { return keeper{newToy("keeps the raise")}, nil })
}

// broken are the ways in which a guard can be broken, and the clause made for each.
var broken = map[string]string{
	"takes every token":                           "StaleTokenIsRefused",
	"reports the presented as highest":            "StaleTokenIsRefused",
	"answers stale repeats":                       "StaleWriterLearnsWhatWasApplied",
	"never tells what was applied":                "StaleWriterLearnsWhatWasApplied",
	"tells it was applied with other content":     "StaleWriterLearnsWhatWasApplied",
	"refuses the equal token":                     "EqualTokenMayDoOtherOperations",
	"writes repeats again":                        "RepeatIsAnsweredFromTheRecord",
	"forgets receipts":                            "RepeatIsAnsweredFromTheRecord",
	"repeat does not raise":                       "RepeatByALaterAttemptRaises",
	"repeat keeps the holder":                     "RepeatByALaterAttemptRaises",
	"replays other content":                       "OtherContentChangesNothing",
	"conflict raises":                             "OtherContentChangesNothing",
	"takes tokens of others":                      "EqualTokenOfAnotherAttemptIsACollision",
	"looks for repeats before attempts":           "EqualTokenOfAnotherAttemptIsACollision",
	"folds attempts":                              "EqualTokenOfAnotherAttemptIsACollision",
	"operations of all keys are one":              "OperationBelongsToItsKey",
	"compares tokens as float":                    "TokensAreExact",
	"compares tokens as int64":                    "TokensAreExact",
	"compares tokens as text":                     "TokensAreExact",
	"compares tokens as 32 bits":                  "TokensAreExact",
	"folds case":                                  "KeysAreBytes",
	"trims keys":                                  "KeysAreBytes",
	"drops combining marks":                       "KeysAreBytes",
	"drops zero-width characters":                 "KeysAreBytes",
	"drops namespaces":                            "NamespacesAreBytes",
	"folds operations":                            "OperationsAreBytes",
	"joins namespace and key":                     "NamesAreNotJoined",
	"cuts keys":                                   "LongNamesAreKeptWhole",
	"takes token zero":                            "InvalidInputIsRefused",
	"takes empty keys":                            "InvalidInputIsRefused",
	"mends keys":                                  "InvalidInputIsRefused",
	"asks nobody":                                 "NotAuthorisedIsRefused",
	"remembers the rolled back token":             "RollbackRestoresEverything",
	"remembers the rolled back record":            "RollbackRestoresEverything",
	"keeps the raise":                             "BusinessRefusalWritesNothing",
	"records refused writes":                      "BusinessRefusalWritesNothing",
	"keeps the entry of a refused write":          "BusinessRefusalWritesNothing",
	"keeps the maximum in its process":            "StoresOpenedTwiceJudgeAlike",
	"asks first, writes later on busy keys":       "RaceOfShuffledTokens",
	"takes empty contents":                        "InvalidInputIsRefused",
	"remembers the raced rollback":                "RaceOfRollbacks",
	"locks the keys beside it":                    "RaceOfNewKeys",
	"last first contact wins":                     "RaceOfFirstContact",
	"looks for repeats before the lock":           "RaceOfOneOperation",
	"answers its own receipt":                     "RepeatIsAnsweredFromTheRecord",
	"looks for repeats of others before the lock": "RaceOfAttemptsAtOneOperation",
	"raise lowers":                                "RaiseFencesOlderTokens",
	"raise takes the token away":                  "RaiseFencesOlderTokens",
	"raise does nothing":                          "RaiseFencesOlderTokens",
	"lookup of all keys":                          "LookupTellsWhatWasApplied",
	"lookup tells the last token":                 "LookupTellsWhatWasApplied",
}

// TestBrokenGuardIsCaught breaks a sound guard in one way at a time (RG-001, RG-002,
// RG-003, RG-007, RG-008, RG-009, RG-010, RG-011, RG-012, RG-014, RG-017, RG-018,
// RG-019). The first clause that turns red is the one that is made for it.
func TestBrokenGuardIsCaught(t *testing.T) {
	for fault, clause := range broken {
		t.Run(fault, func(t *testing.T) {
			problems := guardtest.Check(t.Context(), func(context.Context) (guardtest.Store, error) { return newToy(fault), nil })
			if len(problems) == 0 || problems[0].Clause != clause {
				t.Errorf("problems found: %.300v, want the first of clause %s", problems, clause)
			}
		})
	}
}

// TestEachClauseCatchesABrokenGuard: none is there that never turns red.
func TestEachClauseCatchesABrokenGuard(t *testing.T) {
	caught := slices.Collect(maps.Values(broken))
	every := guardtest.Check(t.Context(), func(context.Context) (guardtest.Store, error) { return nil, errClosed })
	for _, p := range every {
		if !slices.Contains(caught, p.Clause) {
			t.Errorf("no broken guard is caught on %s", p.Clause)
		}
	}
	if len(every) < 20 {
		t.Errorf("%d clauses on a store that cannot be opened: %v", len(every), every)
	}
}

var errClosed = errors.New("closed")

// TestRaceWithoutContendersIsNotEvaluated: on one processor no two calls of a quick
// store are ever under way at once, and races prove nothing.
func TestRaceWithoutContendersIsNotEvaluated(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	problems := guardtest.Check(t.Context(), func(context.Context) (guardtest.Store, error) { return newToy("hasty"), nil })
	var clauses []string
	for _, p := range problems {
		clauses = append(clauses, p.Clause)
		if !errors.Is(p.Err, guardtest.ErrUnsupported) {
			t.Errorf("%s: %v, want not evaluated", p.Clause, p.Err)
		}
	}
	want := []string{"RaceOfFirstContact", "RaceOfShuffledTokens", "RaceOfRollbacks", "RaceOfNewKeys", "RaceOfOneOperation", "RaceOfAttemptsAtOneOperation"}
	if !slices.Equal(clauses, want) {
		t.Errorf("not evaluated: %v, want %v", clauses, want)
	}
}

func TestKeeperThatKeepsNothingIsCaught(t *testing.T) {
	problems := guardtest.Check(t.Context(), func(context.Context) (guardtest.Store, error) { return keeper{newToy("")}, nil })
	if len(problems) != 1 || problems[0].Clause != "BusinessRefusalWritesNothing" {
		t.Errorf("problems = %v, want one of BusinessRefusalWritesNothing", problems)
	}
}

// TestStoreWithoutOptionsIsNotEvaluated: what a store cannot do is never passed.
func TestStoreWithoutOptionsIsNotEvaluated(t *testing.T) {
	bare := func(context.Context) (guardtest.Store, error) {
		return struct{ guardtest.Store }{bare{newToy("")}}, nil
	}
	var skipped []string
	for _, p := range guardtest.Check(t.Context(), bare) {
		skipped = append(skipped, p.Clause)
		if !errors.Is(p.Err, guardtest.ErrUnsupported) {
			t.Errorf("%s: %v, want not evaluated", p.Clause, p.Err)
		}
	}
	want := []string{"RollbackRestoresEverything", "StoresOpenedTwiceJudgeAlike", "RaceOfRollbacks", "RaiseFencesOlderTokens", "LookupTellsWhatWasApplied"}
	if !slices.Equal(skipped, want) {
		t.Errorf("not evaluated: %v, want %v", skipped, want)
	}
}

func TestStoreThatFailsIsAProblem(t *testing.T) {
	problems := guardtest.Check(t.Context(), func(context.Context) (guardtest.Store, error) { return nil, context.DeadlineExceeded })
	if len(problems) == 0 || !strings.Contains(problems[0].String(), "open store: context deadline exceeded") {
		t.Errorf("problems = %v, want the error of opening", problems)
	}
}

// A deaf store never answers, whatever becomes of the context.
type deaf struct{ guardtest.Store }

func (deaf) Apply(context.Context, resourceguard.Write, []byte, guardtest.End) (resourceguard.Result, error) {
	select {}
}

// What hangs or is not there is a problem and harms no caller, whose context need not end.
func TestStoreThatDoesNotAnswerIsAProblem(t *testing.T) {
	defer guardtest.SetPatience(20 * time.Millisecond)()
	for want, open := range map[string]guardtest.Open{
		"has not answered":  func(context.Context) (guardtest.Store, error) { return deaf{newToy("")}, nil },
		"a store or an err": func(context.Context) (guardtest.Store, error) { return nil, nil },
		"open must be":      nil,
	} {
		problems := guardtest.Check(context.Background(), open)
		if len(problems) < 20 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("%d problems, the first %.200v; want all clauses: %s", len(problems), problems, want)
		}
	}
}
