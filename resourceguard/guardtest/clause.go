package guardtest

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/orbitkit/orbit/resourceguard"
)

// clauses are the promises of a guard, in the order in which a broken one is best
// understood.
func clauses() []clause {
	return []clause{
		script("EqualTokenMayDoOtherOperations", // RG-002
			present(5, "a").isApplied(),
			present(5, "b").isApplied(),
			present(5, "c").isApplied()),
		script("StaleTokenIsRefused", // RG-001, RG-010
			present(7, "a").isApplied(),
			present(6, "b").isStale(7),
			present(1, "b").isStale(7),
			present(7, "c").isApplied(),
			present(8, "d").isApplied(),
			present(7, "e").isStale(8)),
		script("StaleWriterLearnsWhatWasApplied", // RG-017, AMB-041
			present(6, "a").isApplied(),
			present(9, "b").isApplied(),
			present(6, "a").isStaleThough(9, true),
			present(6, "c").isStaleThough(9, false),
			present(6, "a").content("other").isStaleThough(9, false)),
		script("EqualTokenOfAnotherAttemptIsACollision", // RG-002
			present(5, "a").isApplied(),
			present(5, "b").by("another").isCollision(),
			present(5, "a").by("another").isCollision(),
			present(5, "b").by("ATTEMPT-5").isCollision(),
			present(5, "b").isApplied()),
		script("RepeatIsAnsweredFromTheRecord", // RG-011
			present(5, "a").isApplied(),
			present(5, "a").isReplayed(receiptOf("a", 5)),
			present(5, "a").answers("another receipt").isReplayed(receiptOf("a", 5)),
			present(5, "none").answers("").isApplied(),
			present(5, "none").isReplayed(""),
			present(5, "bytes").answers("\x00\xff'\\").isApplied(),
			present(5, "bytes").isReplayed("\x00\xff'\\")),
		script("RepeatByALaterAttemptRaises", // RG-011: the operation does not hang on token or attempt
			present(5, "a").isApplied(),
			present(9, "a").isReplayed(receiptOf("a", 5)),
			present(8, "b").isStale(9),
			present(9, "b").by("attempt-5").isCollision(),
			present(9, "b").isApplied()),
		script("OtherContentChangesNothing", // RG-012: not even the highest token
			present(5, "a").isApplied(),
			present(9, "a").content("other").isConflict(),
			present(5, "b").isApplied(),
			present(5, "a").content("other").isConflict(),
			present(6, "c").isApplied(),
			present(6, "a").isReplayed(receiptOf("a", 5))),
		script("OperationBelongsToItsKey", // AMB-042
			present(5, "a").isApplied(),
			present(5, "a").on("object/43").isApplied(),
			present(5, "a").on("object/44").content("other").isApplied()),
		script("TokensAreExact", tokens()...),            // RG-009
		script("KeysAreBytes", onEach(step.on)...),       // RG-008
		script("NamespacesAreBytes", onEach(step.in)...), // RG-008
		script("OperationsAreBytes", operations()...),
		script("NamesAreNotJoined",
			present(9, "a").in("a").on("b/c").isApplied(),
			present(8, "a").in("a/b").on("c").isApplied(),
			present(7, "a").in("a:b").on("c").isApplied(),
			present(6, "a").in("a").on("b:c").isApplied(),
			present(5, "a").in("a|b").on("c").isApplied(),
			present(4, "a").in("a").on("b|c").isApplied()),
		script("LongNamesAreKeptWhole", longNames()...),
		script("InvalidInputIsRefused", invalidInput()...), // RG-009, RG-010
		script("NotAuthorisedIsRefused", // RG-001, RG-014
			present(5, "a").in(Forbidden).isNotAllowed(),
			present(5, "a").isApplied()),
		script("RollbackRestoresEverything", // RG-018
			present(5, "a").isApplied(),
			present(9, "b").isAppliedButRolledBack(),
			present(6, "c").isApplied(),
			present(9, "b").isApplied(),
			present(8, "a").on("first contact").isAppliedButRolledBack(),
			present(3, "a").on("first contact").isApplied()),
		{"BusinessRefusalWritesNothing", businessRefusal},
		{"StoresOpenedTwiceJudgeAlike", judgeAlike},    // RG-003
		{"RaceOfFirstContact", raceOfFirstContact},     // RG-007
		{"RaceOfShuffledTokens", raceOfShuffledTokens}, // RG-003, RG-019
		{"RaceOfRollbacks", raceOfRollbacks},           // RG-018
		{"RaceOfNewKeys", raceOfNewKeys},
		{"RaceOfOneOperation", raceOfOneOperation},
		{"RaceOfAttemptsAtOneOperation", raceOfAttempts},
		script("RaiseFencesOlderTokens", raises()...),
		{"LookupTellsWhatWasApplied", lookupTellsWhatWasApplied},
	}
}

// tokens rise over the borders at which floats, signed integers, digits and bytes go
// wrong.
func tokens() []step {
	var steps []step
	before := uint64(0)
	for _, token := range []uint64{
		1, 2, 9, 10, 11, 99, 100, 127, 128, 255, 256, 65535, 65536, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32,
		1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<63 - 1, 1 << 63, 1<<63 + 1, math.MaxUint64 - 1, math.MaxUint64,
	} {
		steps = append(steps, present(token, fmt.Sprintf("operation-%d", token)).isApplied())
		if before > 0 {
			steps = append(steps, present(before, "late").isStale(token))
		}
		before = token
	}
	return append(steps, present(math.MaxUint64, "last").isApplied())
}

// names differ in bytes but not for some collation, normaliser, trimmer or number.
var names = []string{
	"object/a", "object/A", "object/a ", " object/a", "object/á", "object/a\u0301", "object/a\u200b", "object/ａ",
	"\u0301", "\u0308", "\u200b", "\u200d", "\ufeff", "😀", "😁", "ß", "ss", "ſs", "i", "I", "ı", "İ",
	"1", "01", "1.0", "1e0", "%", "_", "\\", "\\\\", "'", "''", "\"", "null",
}

// onEach writes to each name under falling tokens: two names that share a maximum show
// as a stale write, two that share operations as a replay. Then it looks whether each
// still has the maximum of its own.
func onEach(on func(step, string) step) []step {
	var first, then []step
	for i, name := range names {
		token := 2 * uint64(len(names)-i)
		first = append(first, on(present(token, "a"), name).isApplied())
		then = append(then,
			on(present(token-1, "b"), name).isStale(token),
			on(present(token, "b"), name).isApplied())
	}
	return append(first, then...)
}

func operations() []step {
	var steps []step
	for _, name := range names {
		steps = append(steps, present(5, name).isApplied())
	}
	return steps
}

// longNames have 191 characters of four bytes, the longest that a task can have
// (MIG-017), and differ in the last. Longer ones may be refused but not cut.
func longNames() []step {
	long := strings.Repeat("😀", resourceguard.MaxName-1)
	a, b := long+"😀", long+"😁"
	return []step{
		present(9, a).in(a).on(a).by(a).isApplied(),
		present(9, a).in(a).on(a).by(b).isCollision(),
		present(9, a).in(a).on(a).by(a).isReplayed(receiptOf(a, 9)),
		present(9, b).in(a).on(a).by(a).isApplied(),
		present(8, a).in(a).on(b).by(a).isApplied(),
		present(7, a).in(b).on(a).by(a).isApplied(),
		present(9, "a").on(a + "1").isInvalidOrApart(),
		present(8, "a").on(a + "2").isInvalidOrApart(),
		present(9, "a").in(a + "1").isInvalidOrApart(),
		present(8, "a").in(a + "2").isInvalidOrApart(),
		present(7, a+"1").isInvalidOrApart(),
		present(7, a+"2").isInvalidOrApart(),
	}
}

func invalidInput() []step {
	return []step{
		present(0, "a").isInvalid(),
		present(5, "").isInvalid(),
		present(5, "a").in("").isInvalid(),
		present(5, "a").on("").isInvalid(),
		present(5, "a").by("").isInvalid(),
		present(5, "a").content("").isInvalid(),
		present(5, "a").on("a\xff").isInvalidOrApart(),
		present(4, "a").on("a\xfe").isInvalidOrApart(),
		present(3, "a").on("a\ufffd").isApplied(),
		present(1, "a").isApplied(), // nothing was raised
	}
}

func businessRefusal(ctx context.Context, t *trial) error {
	if t.keepsRaise() {
		return t.play(ctx, t.store,
			present(5, "a").isApplied(),
			present(9, "b").isRefusedButRaised(),
			present(6, "c").isStale(9),
			present(9, "d").isRefusedButRaised(),
			present(9, "d").isApplied(),
			present(9, "b").isApplied(),
			present(8, "a").on("first contact").isRefusedButRaised(),
			present(3, "a").on("first contact").isStale(8))
	}
	return t.play(ctx, t.store,
		present(5, "a").isApplied(),
		present(9, "b").isRefusedByBusiness(),
		present(6, "c").isApplied(),
		present(9, "b").isApplied(),
		present(8, "a").on("first contact").isRefusedByBusiness(),
		present(3, "a").on("first contact").isApplied())
}

// raises are those of a worker before its first effect, and of a reconciler, which has
// no attempt and raises to a token that no attempt was given (TOK-017).
func raises() []step {
	return []step{
		raise(9).isDone(),
		present(8, "a").isStale(9),
		raise(8).isStale(9),
		raise(9).isDone(),
		raise(9).by("another").isCollision(),
		raise(9).by("").isDone(),
		present(9, "a").isApplied(), // the reconciler did not take the token away
		raise(10).by("").isDone(),
		raise(10).by("").isDone(),
		present(9, "b").isStale(10),
		present(9, "a").isStaleThough(10, true),
		present(10, "b").isCollision(),
		raise(10).isCollision(),
		raise(5).by("").isStale(10),
		present(11, "b").isApplied(),
		raise(0).isInvalid(),
		raise(12).on("").isInvalid(),
		raise(12).in(Forbidden).isNotAllowed(),
		raise(math.MaxUint64).isDone(),
		present(math.MaxUint64-1, "c").isStale(math.MaxUint64),
	}
}

func judgeAlike(ctx context.Context, t *trial) error {
	if err := t.reopen(ctx); err != nil {
		return err
	}
	turns := []struct {
		store Store
		step  step
	}{
		{t.store, present(5, "a").isApplied()},
		{t.others[0], present(4, "b").isStale(5)},
		{t.others[0], present(5, "a").isReplayed(receiptOf("a", 5))},
		{t.others[0], present(9, "c").isApplied()},
		{t.store, present(8, "d").isStale(9)},
		{t.store, present(10, "d").isAppliedButRolledBack()},
		{t.others[0], present(9, "d").isApplied()},
	}
	for _, turn := range turns {
		if err := t.play(ctx, turn.store, turn.step); err != nil {
			return err
		}
	}
	return nil
}

func lookupTellsWhatWasApplied(ctx context.Context, t *trial) error {
	looker, can := t.store.(Looker)
	if !can {
		return fmt.Errorf("%w: Lookup", ErrUnsupported)
	}
	err := t.play(ctx, t.store,
		present(5, "a").isApplied(),
		present(9, "b").isAppliedButRolledBack(),
		present(9, "a").isReplayed(receiptOf("a", 5)))
	if err != nil {
		return err
	}
	r, there, err := looker.Lookup(ctx, "namespace", "object/42", "a")
	if err != nil || !there || r.Token != 5 || r.Attempt != "attempt-5" || string(r.Receipt) != receiptOf("a", 5) {
		return fmt.Errorf("an applied operation was looked up as %+v, %t, %v", r, there, err)
	}
	for _, absent := range [][3]string{
		{"namespace", "object/42", "b"}, {"namespace", "object/43", "a"}, {"another", "object/42", "a"}, {"namespace", "object/42", "A"},
	} {
		if r, there, err := looker.Lookup(ctx, absent[0], absent[1], absent[2]); err != nil || there {
			return fmt.Errorf("operation %q, which was not applied, was looked up as %+v, %t, %v", absent, r, there, err)
		}
	}
	return nil
}
