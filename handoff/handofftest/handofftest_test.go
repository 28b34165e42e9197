package handofftest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orbitkit/orbit/handoff/handofftest"
	"github.com/orbitkit/orbit/internal/bubble"
)

// TestMain keeps rapid from shrinking and filing the failures that are wanted here.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("rapid.shrinktime", "0s")
	flag.Set("rapid.nofailfile", "true")
	os.Exit(m.Run())
}

// HAND-039, HAND-087: a sound store may wrap its refusals, and write expiry when it likes.
func TestSoundStoresPass(t *testing.T) {
	for _, variant := range []string{"", "refusals are wrapped", "expiry is written by the snapshot"} {
		t.Run(variant, func(t *testing.T) { handofftest.Run(t, open(variant)) })
	}
}

// What a host cannot do is skipped and not passed.
func TestWhatAHostCannotDoIsSkipped(t *testing.T) {
	problems, skipped := handofftest.Check(t.Context(), func(context.Context) (handofftest.Host, error) {
		h := newToy("").host()
		h.Reopen, h.Receipt = nil, nil
		return h, nil
	})
	if want := "[ReceiptsAreKeptForTheAddress CrashAfterTakeHoldsUntilTheDeadline ReopenedStoreIsTheSame]"; len(problems) > 0 || fmt.Sprint(skipped) != want {
		t.Errorf("problems %v, skipped %v, want %s", problems, skipped, want)
	}
}

func TestAHostThatCannotBeTestedIsAProblem(t *testing.T) {
	for want, open := range map[string]handofftest.Open{
		"Host.Store":   func(context.Context) (handofftest.Host, error) { return handofftest.Host{}, nil },
		"Host.Advance": func(context.Context) (handofftest.Host, error) { return handofftest.Host{Store: newToy("")}, nil },
		"no database":  func(context.Context) (handofftest.Host, error) { return handofftest.Host{}, errors.New("no database") },
		"cannot close": func(context.Context) (handofftest.Host, error) {
			h := newToy("").host()
			h.Close = func() error { return errors.New("cannot close") }
			return h, nil
		},
		"ended the goroutine": func(context.Context) (handofftest.Host, error) {
			h := newToy("").host()
			h.Advance = func(context.Context, time.Duration) error { runtime.Goexit(); return nil }
			return h, nil
		},
	} {
		if problems, _ := handofftest.Check(t.Context(), open); !strings.Contains(fmt.Sprint(problems), want) {
			t.Errorf("problems %v, want %s", problems, want)
		}
	}
}

// TestABrokenStoreIsCaught breaks a sound store in one way at a time. The clause that is
// made for it must turn red.
func TestABrokenStoreIsCaught(t *testing.T) {
	unproven := handofftest.Clauses()
	for fault, clause := range map[string]string{
		"the fence is no generation":                   "GenerationsOnlyGrow", // HAND-041
		"a closed ticket keeps its holder":             "HandOverIsOneTake",   // HAND-048
		"receipts have no time":                        "HandOverIsOneTake",   // HAND-053
		"nobody can take":                              "OneTakerWins",        // HAND-071
		"Take asks first":                              "OneTakerWins",        // HAND-071: two winners
		"who loses has expired":                        "OneTakerWins",        // HAND-072
		"who loses the lock meets a fault":             "OneTakerWins",        // HAND-073
		"refusals of its own":                          "OneTakerWins",        // HAND-039
		"refusals are several":                         "TakeIsRefusedByState",
		"the unknown is expired":                       "UnknownKeysAreRefused",
		"every Offer is a new generation":              "OfferAgainIsAReplay",
		"a replay changes the payload":                 "OfferAgainIsAReplay",
		"a replay renews the deadline":                 "OfferAgainIsAReplay",
		"a replay of other content is an error":        "OfferAgainIsAReplay",
		"a replay answers what it was given":           "OfferAgainIsAReplay",
		"generations begin anew":                       "GenerationsOnlyGrow",
		"closed is closed for ever":                    "GenerationsOnlyGrow",
		"an expired ticket keeps its holder":           "GenerationsOnlyGrow",
		"the generation is the caller's":               "StoreMakesItsOwnFields",
		"the deadline is the caller's":                 "StoreMakesItsOwnFields",
		"needs no address":                             "InvalidTicketsAreRefused",
		"needs no time limit":                          "InvalidTicketsAreRefused",
		"invalid tickets are refused in its own words": "InvalidTicketsAreRefused",
		"anybody may take":                             "TakeIsForTheAddresseeAlone",
		"the state counts before the taker":            "TakeIsForTheAddresseeAlone",
		"the withdrawn can be taken":                   "TakeIsRefusedByState",
		"the late taker meets a taken ticket":          "TakeIsRefusedByState",
		"any token replies":                            "ReplyGoesByTheToken",
		"no token is a token":                          "ReplyGoesByTheToken",
		"tokens without case":                          "ReplyGoesByTheToken",
		"tokens without blanks":                        "ReplyGoesByTheToken",
		"the token is the key":                         "OldTokensNeverWork",
		"the token before works":                       "OldTokensNeverWork",
		"the end forgets the token":                    "ReplyIsRefusedInOrder",
		"the receipt counts before the token":          "ReplyIsRefusedInOrder",
		"a second reply succeeds":                      "ReplyIsRefusedInOrder",
		"the late reply has lost its lease":            "ReplyIsRefusedInOrder",
		"any receipt will do":                          "ReceiptsMustNotContradictThemselves",
		"a bad receipt closes":                         "ReceiptsMustNotContradictThemselves",
		"anybody may cancel":                           "CancelIsForTheSourceAlone",
		"the taken can be canceled":                    "CancelIsForTheSourceAlone",
		"a second cancel succeeds":                     "CancelIsForTheSourceAlone",
		"canceling the expired is expired":             "CancelIsForTheSourceAlone",
		"Take renews the deadline":                     "TimeLineIsOneForTakeAndReply",
		"late replies are taken":                       "TimeLineIsOneForTakeAndReply",
		"the deadline itself is in time":               "DeadlineIsExact",
		"milliseconds":                                 "DeadlineIsExact",
		"the clock is the system's":                    "DeadlineIsExact",
		"the overdue is replayed":                      "ExpiredIsExpiredForAll",
		"the snapshot hides the overdue":               "ExpiredIsExpiredForAll",
		"keys without case":                            "KeysAreBytes",
		"keys without trailing blanks":                 "KeysAreBytes",
		"keys are mended":                              "KeysAreBytes",
		"identities without case":                      "IdentitiesAreBytes",
		"addresses are trimmed":                        "AddressesAreBytes",
		"payloads are text":                            "PayloadsAreBytes",
		"payloads are cut":                             "PayloadsAreBytes",
		"keys are cut":                                 "LongNamesAreKeptWhole",
		"payloads are shared":                          "MemoryIsNotShared",
		"artifacts are shared":                         "MemoryIsNotShared",
		"the receipt goes to the source":               "ReceiptsAreKeptForTheAddress",
		"artifacts are lost":                           "ReceiptsAreKeptForTheAddress",
		"artifacts are joined":                         "ReceiptsAreKeptForTheAddress",
		"a restart frees what was taken":               "CrashAfterTakeHoldsUntilTheDeadline",
		"a restart forgets tokens":                     "CrashAfterTakeHoldsUntilTheDeadline",
		"a restart forgets what has ended":             "ReopenedStoreIsTheSame",
		"Reply closes what is there meanwhile":         "ReplyAgainstExpiry",
		"Offer asks first":                             "OffersAtOnceAreOneTicket",
		"Reply asks first":                             "RepliesAtOnceSettleOnce",
		"Cancel asks first":                            "CancelAgainstTake",
		"the snapshot is torn":                         "SnapshotIsOnePicture",
	} {
		t.Run(fault, func(t *testing.T) {
			for range 20 { // on a busy machine the contenders of a race may not meet
				if handofftest.Judge(t.Context(), open(fault), clause) != nil {
					return
				}
			}
			t.Errorf("not caught by %s", clause)
		})
		unproven = slices.DeleteFunc(unproven, func(name string) bool { return name == clause })
	}
	// Random histories are a second net for what the races before them catch.
	if want := []string{"HistoriesAreLinearizable"}; !slices.Equal(unproven, want) {
		t.Errorf("no broken store for %v, want %v", unproven, want)
	}
}

// HAND-074: a store that hangs and ignores its context holds up nobody. The clock of the
// bubble passes the wait.
func TestAStoreThatHangsIsCaught(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		err := handofftest.Judge(t.Context(), func(context.Context) (handofftest.Host, error) {
			toy := newToy("who loses waits for ever")
			toy.hang = hang
			return toy.host(), nil
		}, "OneTakerWins")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the verdict is %v", err)
		}
	})
}
