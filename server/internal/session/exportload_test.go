package session

// A Load is what a connection makes the node keep in memory, in bytes.
type Load struct{ InFlight, Answers, Assigns int }

// Loads returns the load of each open connection.
func (h *Hub) Loads() []Load {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]Load, 0, len(h.open))
	for s := range h.open {
		var l Load
		s.budget.mu.Lock()
		l.InFlight = s.budget.used
		s.budget.mu.Unlock()
		s.queue.mu.Lock()
		l.Answers, l.Assigns = s.queue.answerBytes, s.queue.assignBytes
		s.queue.mu.Unlock()
		list = append(list, l)
	}
	return list
}

// Waiting is how many messages wait for their batch.
func (h *Hub) Waiting() int {
	n := 0
	for _, f := range []func() int{waiting(h.starts), waiting(h.resumes), waiting(h.renewals), waiting(h.finishes), waiting(h.returns), waiting(h.drains)} {
		n += f()
	}
	return n
}

func waiting[Q, A any](b *batcher[Q, A]) func() int {
	return func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.waiting.len()
	}
}

// Bounds of a Load.
const (
	MostInFlight = inFlight
	MostWaiting  = inFlight / inFlightEach
	MostAnswers  = answerRoom
)
