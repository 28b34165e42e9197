package dispatch

// A takerRoom is what a taker still takes.
type takerRoom struct {
	*Taker
	slots  int
	bytes  int
	lanes  map[int64]bool
	groups map[int64][]*int // by lane, what is left of the groups that it is in
}

func newTakerRoom(t *Taker) takerRoom {
	r := takerRoom{Taker: t, slots: t.Slots, bytes: t.Bytes, lanes: make(map[int64]bool, len(t.Lanes))}
	for _, l := range t.Lanes {
		r.lanes[l] = true
	}
	if len(t.Groups) > 0 {
		r.groups = make(map[int64][]*int)
	}
	for i := range t.Groups {
		left := t.Groups[i].Slots
		for _, l := range t.Groups[i].Lanes {
			r.groups[l] = append(r.groups[l], &left)
		}
	}
	return r
}

// of is how many tasks of a lane it takes.
func (t *takerRoom) of(lane int64) int {
	if t.bytes <= 0 || !t.lanes[lane] {
		return 0
	}
	n := t.slots
	for _, left := range t.groups[lane] {
		n = min(n, *left)
	}
	return max(n, 0)
}

// use notes that it has got a task of a lane, of size bytes.
func (t *takerRoom) use(lane int64, size int) {
	t.slots, t.bytes = t.slots-1, t.bytes-size
	for _, left := range t.groups[lane] {
		*left--
	}
}

// demand is how many tasks of a lane the takers take.
func (c *claim) demand(lane int64) int {
	n := 0
	for i := range c.takers {
		n += c.takers[i].of(lane)
	}
	return min(n, c.slots)
}

// demandOf is how many tasks of some lanes together the takers take, or a little more if
// groups span several of them.
func (c *claim) demandOf(lanes []int64) int {
	n := 0
	for i := range c.takers {
		t, most := &c.takers[i], 0
		for _, id := range lanes {
			most += t.of(id)
		}
		n += min(most, t.slots)
	}
	return min(n, c.slots)
}

// takerFor returns the taker with the most room for x, or -1.
func (c *claim) takerFor(x *candidate) int {
	best, most := -1, 0
	if x.size > c.bytes && len(c.taken) > 0 {
		return best
	}
	for i := range c.takers {
		t := &c.takers[i]
		if n := t.of(x.lane); n > most && t.bytes >= x.size {
			best, most = i, n
		}
	}
	return best
}
