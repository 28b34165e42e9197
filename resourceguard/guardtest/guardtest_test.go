package guardtest_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/orbitkit/orbit/resourceguard/guardtest"
)

func TestSoundGuardPasses(t *testing.T) {
	open := func(context.Context) (guardtest.Store, error) { return newToy(""), nil }
	guardtest.Run(t, open)
	problems, skipped := guardtest.Check(t.Context(), open)
	if len(problems) > 0 {
		t.Errorf("problems of a sound guard: %v", problems)
	}
	if want := []string{"StoresOpenedTwiceJudgeAlike"}; !slices.Equal(skipped, want) {
		t.Errorf("skipped %v, want %v: the toy cannot be reopened", skipped, want)
	}
}

func TestSoundGuardThatKeepsRaisePasses(t *testing.T) {
	guardtest.Run(t, func(context.Context) (guardtest.Store, error) { return keeper{newToy("keeps the raise")}, nil })
}

// TestBrokenGuardIsCaught breaks a sound guard in one way at a time. The clause that
// is made for it must turn red.
func TestBrokenGuardIsCaught(t *testing.T) {
	for fault, clause := range map[string]string{
		"takes every token":                  "StaleTokenIsRefused",
		"reports the presented as highest":   "StaleTokenIsRefused",
		"answers stale repeats":              "StaleWriterLearnsWhatWasApplied",
		"never tells what was applied":       "StaleWriterLearnsWhatWasApplied",
		"always tells it was applied":        "StaleWriterLearnsWhatWasApplied",
		"refuses the equal token":            "EqualTokenMayDoOtherOperations",
		"writes repeats again":               "RepeatIsAnsweredFromTheRecord",
		"forgets receipts":                   "RepeatIsAnsweredFromTheRecord",
		"repeat does not raise":              "RepeatByALaterAttemptRaises",
		"repeat keeps the holder":            "RepeatByALaterAttemptRaises",
		"replays other content":              "OtherContentChangesNothing",
		"conflict raises":                    "OtherContentChangesNothing",
		"takes tokens of others":             "EqualTokenOfAnotherAttemptIsACollision",
		"looks for repeats before attempts":  "EqualTokenOfAnotherAttemptIsACollision",
		"folds attempts":                     "EqualTokenOfAnotherAttemptIsACollision",
		"operations of all keys are one":     "OperationBelongsToItsKey",
		"compares tokens as float":           "TokensAreExact",
		"compares tokens as int64":           "TokensAreExact",
		"compares tokens as text":            "TokensAreExact",
		"compares tokens as 32 bits":         "TokensAreExact",
		"folds case":                         "KeysAreBytes",
		"trims keys":                         "KeysAreBytes",
		"drops combining marks":              "KeysAreBytes",
		"drops zero-width characters":        "KeysAreBytes",
		"drops namespaces":                   "NamespacesAreBytes",
		"folds operations":                   "OperationsAreBytes",
		"joins namespace and key":            "NamesAreNotJoined",
		"cuts keys":                          "LongNamesAreKeptWhole",
		"takes token zero":                   "InvalidInputIsRefused",
		"takes empty keys":                   "InvalidInputIsRefused",
		"mends keys":                         "InvalidInputIsRefused",
		"asks nobody":                        "NotAuthorisedIsRefused",
		"remembers the rolled back token":    "RollbackRestoresEverything",
		"remembers the rolled back record":   "RollbackRestoresEverything",
		"keeps the raise":                    "BusinessRefusalWritesNothing",
		"records refused writes":             "BusinessRefusalWritesNothing",
		"keeps the entry of a refused write": "BusinessRefusalWritesNothing",
		"asks first, writes later":           "RaceOfShuffledTokens",
		"remembers the raced rollback":       "RaceOfRollbacks",
		"one key at a time":                  "RaceOfNewKeys",
		"last first contact wins":            "RaceOfFirstContact",
		"looks for repeats before the lock":  "RaceOfOneOperation",
		"answers its own receipt":            "RaceOfOneOperation",
		"raise lowers":                       "RaiseFencesOlderTokens",
		"raise takes the token away":         "RaiseFencesOlderTokens",
		"raise does nothing":                 "RaiseFencesOlderTokens",
		"lookup of all keys":                 "LookupTellsWhatWasApplied",
		"lookup tells the last token":        "LookupTellsWhatWasApplied",
	} {
		t.Run(fault, func(t *testing.T) {
			toy := func(context.Context) (guardtest.Store, error) { return newToy(fault), nil }
			problems, _ := guardtest.Check(t.Context(), toy)
			if !slices.ContainsFunc(problems, func(p guardtest.Problem) bool { return p.Clause == clause }) {
				t.Errorf("problems found: %v, want one of clause %s", problems, clause)
			}
		})
	}
}

func TestKeeperThatKeepsNothingIsCaught(t *testing.T) {
	problems, _ := guardtest.Check(t.Context(), func(context.Context) (guardtest.Store, error) { return keeper{newToy("")}, nil })
	if len(problems) != 1 || problems[0].Clause != "BusinessRefusalWritesNothing" {
		t.Errorf("problems = %v, want one of BusinessRefusalWritesNothing", problems)
	}
}

// TestStoreWithoutOptionsIsNotEvaluated: what a store cannot do is never passed.
func TestStoreWithoutOptionsIsNotEvaluated(t *testing.T) {
	bare := func(context.Context) (guardtest.Store, error) {
		return struct{ guardtest.Store }{bare{newToy("")}}, nil
	}
	problems, skipped := guardtest.Check(t.Context(), bare)
	want := []string{"RollbackRestoresEverything", "RaceOfRollbacks", "StoresOpenedTwiceJudgeAlike", "RaiseFencesOlderTokens", "LookupTellsWhatWasApplied"}
	if len(problems) > 0 || !slices.Equal(skipped, want) {
		t.Errorf("Check = %v, skipped %v; want no problem and skipped %v", problems, skipped, want)
	}
}

func TestStoreThatFailsIsAProblem(t *testing.T) {
	problems, _ := guardtest.Check(t.Context(), func(context.Context) (guardtest.Store, error) { return nil, context.DeadlineExceeded })
	if len(problems) == 0 || !strings.Contains(problems[0].String(), "open store: context deadline exceeded") {
		t.Errorf("problems = %v, want the error of opening", problems)
	}
}
