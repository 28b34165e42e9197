package handofftest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/orbitkit/orbit/handoff"
)

const microsecond = time.Microsecond

// clauses are the promises of a store, in the order in which a broken one is best
// understood.
func clauses() []clause {
	return []clause{
		script("HandOverIsOneTake", // HAND-006, HAND-007, HAND-041, HAND-053
			offering("k"), taking("k"), replying("k")),
		script("UnknownKeysAreRefused", // HAND-057
			taking("k"), replying("k").holding("token"), replying("k").holding(""), canceling("k"),
			offering("k"), taking("K"), canceling("k2"), replying("").holding("token"), taking(""), canceling("")),
		script("OfferAgainIsAReplay", replays()...),                     // HAND-008, HAND-051, AMB-051
		script("GenerationsOnlyGrow", generations()...),                 // HAND-009, HAND-058, HAND-062
		script("StoreMakesItsOwnFields", junkFields()...),               // HAND-048, HAND-059
		script("InvalidTicketsAreRefused", invalidTickets()...),         // HAND-010, HAND-014, HAND-051, HAND-095
		script("TakeIsForTheAddresseeAlone", onlyTheAddressee()...),     // HAND-011, HAND-052, AMB-049
		script("TakeIsRefusedByState", takenByState()...),               // HAND-052, AMB-049
		script("ReplyGoesByTheToken", tokens()...),                      // HAND-011, HAND-015, HAND-053, HAND-056
		script("OldTokensNeverWork", oldTokens()...),                    // HAND-009, HAND-061
		script("ReplyIsRefusedInOrder", repliesInOrder()...),            // HAND-053, AMB-050
		script("ReceiptsMustNotContradictThemselves", badReceipts()...), // HAND-016, HAND-043, HAND-044, HAND-053
		script("CancelIsForTheSourceAlone", cancels()...),               // HAND-054, HAND-056, AMB-049
		script("TimeLineIsOneForTakeAndReply", oneTimeLine()...),        // HAND-012, HAND-013
		script("DeadlineIsExact", exactDeadlines()...),                  // HAND-012, AMB-047
		script("ExpiredIsExpiredForAll", expiredForAll()...),            // HAND-013, HAND-060, HAND-087
		bulk("KeysAreBytes", eachKey()...),
		bulk("IdentitiesAreBytes", eachAgent()...),
		bulk("AddressesAreBytes", eachAddress()...),
		bulk("PayloadsAreBytes", eachPayload()...), // HAND-047
		{"LongNamesAreKeptWhole", longNames},
		{"MemoryIsNotShared", memoryIsNotShared},                           // HAND-059
		{"ReceiptsAreKeptForTheAddress", receiptsAreKept},                  // HAND-010, HAND-043, AMB-052
		script("CrashAfterTakeHoldsUntilTheDeadline", crashAfterTake()...), // HAND-010, HAND-013
		script("ReopenedStoreIsTheSame", reopened()...),
		{"OneTakerWins", oneTakerWins},                 // HAND-071, HAND-072, HAND-073
		{"OffersAtOnceAreOneTicket", offersAtOnce},     // HAND-051
		{"RepliesAtOnceSettleOnce", repliesAtOnce},     // HAND-053
		{"CancelAgainstTake", cancelAgainstTake},       // HAND-007, HAND-054
		{"ReplyAgainstExpiry", replyAgainstExpiry},     // HAND-013, HAND-060
		{"HistoriesAreLinearizable", linearizable},     // HAND-007, HAND-051, HAND-052
		{"SnapshotIsOnePicture", snapshotIsOnePicture}, // HAND-055
	}
}

func replays() []command {
	other := offering("k").offered(func(t *handoff.Ticket) {
		t.From, t.To, t.ReplyTo, t.Payload, t.TTL = "another source", "another target", "elsewhere", []byte("another"), time.Hour
	})
	return []command{
		offering("k"), offering("k"), other, advancing(3 * time.Second), offering("k"), other, // the deadline stays
		taking("k"), offering("k"), other, // also once taken
		advancing(usualTTL - 3*time.Second - microsecond), offering("k"), replying("k"),
	}
}

func generations() []command {
	return []command{
		offering("k"), canceling("k"), offering("k"), // after withdrawal
		taking("k"), replying("k"), offering("k"), // after a receipt
		advancing(usualTTL), offering("k"), // after expiry without a taker
		taking("k"), advancing(usualTTL), taking("k"), offering("k"), // and with one, also if it was seen
		offering("other"), // a key of its own begins at 1
		canceling("k"), canceling("other"), offering("other"), offering("k"),
		offering("k").within(time.Hour).offered(func(t *handoff.Ticket) { t.To = "a new target" }), // a replay
		canceling("k"),
		offering("k").within(time.Hour).offered(func(t *handoff.Ticket) { t.To = "a new target" }), // what the new one says counts
		taking("k"), taking("k").as("a new target"), replying("k"),
	}
}

// junkFields offers tickets with values in the fields that the store makes.
func junkFields() []command {
	far := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	junk := func(t *handoff.Ticket) {
		t.Generation, t.State, t.Holder, t.Deadline, t.ReceiptAt = 41, handoff.StateAccepted, target, far, far
	}
	return []command{
		offering("k").offered(junk), canceling("k"), offering("k").offered(junk), taking("k"), advancing(usualTTL), replying("k"),
		offering("past").offered(func(t *handoff.Ticket) { t.State, t.Deadline = handoff.StateExpired, time.Unix(1, 0) }), taking("past"),
		offering("negative").offered(func(t *handoff.Ticket) { t.State, t.Generation = "no state", 1<<64-1 }), taking("negative"),
	}
}

func invalidTickets() []command {
	bad := []command{
		offering("").offered(func(t *handoff.Ticket) { t.Key = "" }),
		offering("k").offered(func(t *handoff.Ticket) { t.From = "" }),
		offering("k").offered(func(t *handoff.Ticket) { t.To = "" }),
		offering("k").offered(func(t *handoff.Ticket) { t.ReplyTo = "" }),
		offering("k").within(0),
		offering("k").within(-time.Second),
	}
	// Before there is a ticket, while it is under way, and after its end.
	return slices.Concat(bad, []command{offering("k")}, bad, []command{taking("k"), replying("k")}, bad)
}

func onlyTheAddressee() []command {
	strangers := []command{taking("k").as("stranger"), taking("k").as(source), taking("k").as("")}
	return slices.Concat(
		[]command{offering("k")}, strangers, []command{taking("k")}, strangers,
		[]command{replying("k")}, strangers,
		[]command{offering("late"), advancing(usualTTL), taking("late").as("stranger"), taking("late")},
		[]command{offering("gone"), canceling("gone"), taking("gone").as("stranger"), taking("gone")},
		[]command{offering("self").offered(func(t *handoff.Ticket) { t.To = source }), taking("self").as(source), replying("self")})
}

func takenByState() []command {
	return []command{
		offering("k"), taking("k"), taking("k"), replying("k"), taking("k"), // taken, then closed
		offering("gone"), canceling("gone"), taking("gone"),
		offering("late"), advancing(usualTTL), taking("late"), taking("late"),
		offering("held"), taking("held"), advancing(usualTTL), taking("held"), replying("held"), taking("held"),
		offering("held"), taking("held"), // a new generation is free again
		advancing(usualTTL), taking("k"), taking("gone"), // closed and withdrawn stay that
	}
}

func tokens() []command {
	return []command{
		offering("k"), replying("k").holding(""), replying("k").holding("none was minted"), taking("k"),
		offering("other"), taking("other"),
		replying("k").holding(""), replying("k").holding(string(target)), replying("k").ofGeneration("other", 1),
		replying("k").changed(strings.ToLower), replying("k").changed(swapCase),
		replying("k").changed(func(s string) string { return s + " " }),
		replying("k").changed(func(s string) string { return " " + s }),
		replying("k").changed(func(s string) string { return s[:len(s)-1] }),
		replying("k").changed(func(s string) string { return s + s }),
		replying("k").changed(func(s string) string { return s + "\x00" }),
		replying("k").changed(func(string) string { return "%" }),
		replying("k").changed(func(string) string { return "0" }),
		replying("k"), replying("other"),
		offering("gone"), canceling("gone"), replying("gone").holding(""), replying("gone").holding("token"),
		offering("late"), advancing(usualTTL), replying("late").holding(""), replying("late").holding("token"),
	}
}

// swapCase makes another string of any that has a letter, for stores that compare without
// regard to case.
func swapCase(s string) string {
	swapped := strings.Map(func(r rune) rune {
		if lower := strings.ToLower(string(r)); lower != string(r) {
			return []rune(lower)[0]
		}
		return []rune(strings.ToUpper(string(r)))[0]
	}, s)
	return swapped
}

func oldTokens() []command {
	return []command{
		offering("k"), taking("k"), advancing(usualTTL), replying("k"), // expired: the token is still known
		offering("k"), replying("k").ofGeneration("k", 1), // and no more in the next generation
		taking("k"), replying("k").ofGeneration("k", 1), replying("k"),
		replying("k").ofGeneration("k", 1), replying("k").ofGeneration("k", 2),
		offering("k"), replying("k").ofGeneration("k", 2), canceling("k"), replying("k").ofGeneration("k", 2),
		offering("k"), taking("k"), replying("k").ofGeneration("k", 2), replying("k"),
	}
}

func repliesInOrder() []command {
	bad := handoff.Receipt{Status: "no status"}
	return []command{
		offering("k"), taking("k"),
		replying("k").holding("another").with(bad), // the token before the receipt
		replying("k").with(bad),
		replying("k"),
		replying("k"), replying("k").with(bad), replying("k").holding("another"), // closed
		advancing(usualTTL), replying("k"), // closed in time stays closed
		offering("late"), taking("late"), advancing(usualTTL),
		replying("late").with(bad), replying("late"), replying("late").holding("another"), replying("late"),
	}
}

func badReceipts() []command {
	commands := []command{offering("k"), taking("k")}
	for _, r := range []handoff.Receipt{
		{},
		{Status: "Done", Summary: "case counts"},
		{Status: "done ", Summary: "blanks count"},
		{Status: "closed", Summary: "no status", Failure: "no status"},
		{Status: handoff.ReceiptDone},
		{Status: handoff.ReceiptDone, Failure: "but it failed"},
		{Status: handoff.ReceiptDone, Summary: "done", Failure: "but it failed"},
		{Status: handoff.ReceiptFailed},
		{Status: handoff.ReceiptFailed, Summary: "no reason"},
		{Status: handoff.ReceiptRefused, Summary: "no reason"},
	} {
		commands = append(commands, replying("k").with(r))
	}
	commands = append(commands, replying("k"))
	for _, r := range []handoff.Receipt{
		{Status: handoff.ReceiptFailed, Failure: "disk full"},
		{Status: handoff.ReceiptFailed, Failure: "disk full", Summary: "half of it is there"},
		{Status: handoff.ReceiptRefused, Failure: "not my work"},
		{Status: handoff.ReceiptDone, Summary: "without artifacts"},
	} {
		commands = append(commands, offering("k"), taking("k"), replying("k").with(r))
	}
	return commands
}

func cancels() []command {
	return []command{
		offering("k"), canceling("k").as("stranger"), canceling("k").as(target), canceling("k").as(""), canceling("k"),
		canceling("k"), canceling("k").as(target), // withdrawn
		offering("k"), taking("k"), canceling("k").as(target), canceling("k"), // taken
		replying("k"), canceling("k"), canceling("k").as(target), // closed
		offering("late"), advancing(usualTTL), canceling("late").as(target), canceling("late"), canceling("late"),
		offering("held"), taking("held"), advancing(usualTTL), canceling("held"), replying("held"),
	}
}

// oneTimeLine takes late, and finds that replying has only what is left.
func oneTimeLine() []command {
	return []command{
		offering("k"), advancing(9 * time.Second), taking("k"), advancing(time.Second), replying("k"),
		offering("k"), advancing(9 * time.Second), taking("k"), advancing(time.Second - microsecond), replying("k"),
		offering("k"), advancing(4 * time.Second), offering("k"), taking("k"), offering("k"), advancing(6 * time.Second), replying("k"),
	}
}

func exactDeadlines() []command {
	var commands []command
	for _, ttl := range []time.Duration{
		microsecond, 2 * microsecond, 999999 * microsecond, time.Second, time.Second + microsecond, 1500 * time.Millisecond,
		time.Hour + 7*microsecond, 90 * 24 * time.Hour,
	} {
		commands = append(commands, offering("take").within(ttl), offering("reply").within(ttl), taking("reply"), offering("cancel").within(ttl),
			offering("last").within(ttl), advancing(ttl-microsecond), offering("last"), taking("last"), advancing(microsecond),
			taking("take"), replying("reply"), canceling("cancel"), replying("last"),
			offering("last"), taking("last"), advancing(usualTTL-microsecond), replying("last"), // and one that is in time by a hair
			advancing(13*microsecond))
	}
	return commands
}

func expiredForAll() []command {
	var commands []command
	for _, first := range []command{taking("k"), canceling("k"), replying("k"), offering("k"), taking("k").as("stranger"), canceling("k").as("stranger")} {
		for _, taken := range [][]command{nil, {taking("k")}} {
			commands = append(commands, offering("k"))
			commands = append(commands, taken...)
			commands = append(commands, advancing(usualTTL+time.Minute), first, taking("k"), canceling("k"), replying("k"), advancing(time.Hour))
		}
	}
	return commands
}

func crashAfterTake() []command {
	return []command{
		offering("k"), taking("k"), // its process dies here, and comes back
		taking("k").elsewhere(), canceling("k").elsewhere(), offering("k").elsewhere(),
		advancing(usualTTL - microsecond), taking("k").elsewhere(),
		advancing(microsecond), replying("k"),
		offering("k").offered(func(t *handoff.Ticket) { t.From, t.ReplyTo = "process/source after restart", "inbox/new" }).elsewhere(),
		replying("k").ofGeneration("k", 1), taking("k").elsewhere(), replying("k").ofGeneration("k", 1), replying("k").elsewhere(),
	}
}

func reopened() []command {
	return []command{
		offering("gone"), canceling("gone"), taking("gone").elsewhere(), offering("gone").elsewhere(),
		offering("k"), taking("k").elsewhere(), replying("k"),
		offering("k").elsewhere(), canceling("k"), canceling("k").elsewhere(),
		offering("k"), taking("k"), replying("k").elsewhere(),
		offering("k").elsewhere(), advancing(usualTTL), taking("k"), taking("k").elsewhere(), offering("k").elsewhere(),
	}
}

// receiptsAreKept reads what whoever delivers receipts would.
func receiptsAreKept(ctx context.Context, t *trial) error {
	if t.host.Receipt == nil {
		return errUnsupported
	}
	for _, r := range []handoff.Receipt{
		done,
		{Status: handoff.ReceiptRefused, Failure: "not\x00my\xffwork "},
		{Status: handoff.ReceiptFailed, Failure: "disk full", Summary: "half", Artifacts: slices.Concat(names, []string{"", "a,b", "a\nb", "["})},
	} {
		to := "inbox/" + string(r.Status)
		offered := offering("k").offered(func(h *handoff.Ticket) { h.ReplyTo = to })
		if err := t.play(ctx, offered, offering("k"), taking("k"), replying("k").with(r)); err != nil {
			return err
		}
		if err := t.checkReceipt(ctx, "k", r, to); err != nil {
			return err
		}
	}
	return nil
}
