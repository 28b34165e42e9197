package session

// HotLanes is how many lanes wait to be looked into.
func (h *Hub) HotLanes() int {
	h.board.mu.Lock()
	defer h.board.mu.Unlock()
	return h.board.hot.size
}
