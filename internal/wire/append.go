package wire

import (
	"encoding/json"
	"strconv"
)

// An Appender is a message that writes itself: those that each task has, which
// encoding/json would take several times as long for.
type Appender interface {
	// AppendJSON appends what json.Marshal returns for the message.
	AppendJSON(b []byte) []byte
}

// OpenFrame appends a frame up to its data. The data and a closing bracket complete it.
func OpenFrame(b []byte, kind, id, ref string) []byte {
	b = appendString(append(b, `{"type":`...), kind)
	if id != "" {
		b = appendString(append(b, `,"id":`...), id)
	}
	if ref != "" {
		b = appendString(append(b, `,"ref":`...), ref)
	}
	return append(b, `,"data":`...)
}

// AppendJSON implements [Appender].
func (a Attempt) AppendJSON(b []byte) []byte {
	return append(appendAttempt(b, a.AttemptID, a.Epoch), '}')
}

// AppendJSON implements [Appender].
func (s Started) AppendJSON(b []byte) []byte {
	b = appendAttempt(b, s.AttemptID, s.Epoch)
	b = strconv.AppendUint(append(b, `,"lease_ms":`...), s.LeaseMS, 10)
	b = strconv.AppendUint(append(b, `,"timeout_ms":`...), s.TimeoutMS, 10)
	return append(appendIf(b, `,"cancel_requested":true`, s.CancelRequested), '}')
}

// AppendJSON implements [Appender]. The result is appended byte for byte.
func (f Finish) AppendJSON(b []byte) []byte {
	b = appendAttempt(b, f.AttemptID, f.Epoch)
	b = appendString(append(b, `,"receipt":`...), f.Receipt)
	b = appendString(append(b, `,"outcome":`...), f.Outcome)
	b = appendIf(b, `,"retryable":true`, f.Retryable)
	if len(f.Result) > 0 {
		b = append(append(b, `,"result":`...), f.Result...)
	}
	if f.Error != "" {
		b = appendString(append(b, `,"error":`...), f.Error)
	}
	return append(b, '}')
}

// AppendJSON implements [Appender].
func (f Finished) AppendJSON(b []byte) []byte {
	b = appendAttempt(b, f.AttemptID, f.Epoch)
	b = appendString(append(b, `,"status":`...), f.Status)
	if f.TaskState != "" {
		b = appendString(append(b, `,"task_state":`...), f.TaskState)
	}
	return append(b, '}')
}

// appendAttempt opens a message with the members that name an attempt.
func appendAttempt(b []byte, id string, epoch uint64) []byte {
	b = appendString(append(b, `{"attempt_id":`...), id)
	return strconv.AppendUint(append(b, `,"epoch":`...), epoch, 10)
}

func appendIf(b []byte, member string, there bool) []byte {
	if there {
		b = append(b, member...)
	}
	return b
}

// appendString appends a string as encoding/json does.
func appendString(b []byte, s string) []byte {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(s) // strings always marshal
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
