package session

// HotLanes is how many lanes wait to be looked into.
func (h *Hub) HotLanes() int {
	h.board.mu.Lock()
	defer h.board.mu.Unlock()
	n := len(h.board.resting)
	for _, l := range h.board.lanes {
		for s := l.seats; s != nil; s = s.next {
			if s.spot != 0 {
				n++
				break
			}
		}
	}
	return n
}
