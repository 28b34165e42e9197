package handoff

import "errors"

// The refusals of a [Store]. Stores of hosts must use these and make none of their own,
// since judges tell them apart by errors.Is; wrapping them is fine.
var (
	// ErrUnknownKey: there is no ticket of this key.
	ErrUnknownKey = errors.New("handoff: 交接单不存在")
	// ErrTaken: the ticket is taken already. It meets Cancel, and who loses a race of Takes.
	ErrTaken = errors.New("handoff: 交接单已被领取")
	// ErrExpired: the deadline has passed. Late Takes and Replies are always refused.
	ErrExpired = errors.New("handoff: 交接单已超时限")
	// ErrNotAddressee: who takes is not To.
	ErrNotAddressee = errors.New("handoff: 领取者不是指定接收方")
	// ErrNotSource: who cancels is not From.
	ErrNotSource = errors.New("handoff: 收回者不是交接发起方")
	// ErrLeaseLost: the token is not the one of the current generation.
	ErrLeaseLost = errors.New("handoff: 领取令牌不匹配")
	// ErrAlreadySettled: the ticket has ended.
	ErrAlreadySettled = errors.New("handoff: 交接单已是终态")
)

// An InvalidError reports an argument that breaks a rule. Nothing was changed, and
// nothing was read or written unless the order of judgement asks for it (see [Store]).
type InvalidError struct {
	Field string // such as Ticket.TTL
	Rule  string // what it must be
}

// Error names field and rule, never the value.
func (e *InvalidError) Error() string { return "handoff: " + e.Field + " " + e.Rule }
