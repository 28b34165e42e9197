package relay

import (
	"context"
	"slices"
	"sync"

	"github.com/orbitkit/orbit"
)

// A pipe holds the rows of one target that were read and not yet sent, bounded by
// count and bytes.
type pipe struct {
	lead *lead
	gate *gate
	more chan struct{} // there may be rows to take

	mu      sync.Mutex
	entries []*entry
	rows    int // reserved, whether fetched already or not
	bytes   int
}

func newPipe(l *lead, g *gate) *pipe {
	return &pipe{lead: l, gate: g, more: make(chan struct{}, 1)}
}

func (p *pipe) maxRows() int { return 2 * p.lead.cfg.Senders * p.lead.cfg.BatchRows }

// vacant reports whether at least half of the pipe is free, so that reading is worth
// its statements.
func (p *pipe) vacant() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.vacantLocked()
}

func (p *pipe) vacantLocked() bool {
	return p.rows <= p.maxRows()/2 && p.bytes <= p.lead.cfg.BufferBytes/2
}

// room returns how many more rows fit.
func (p *pipe) room() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(1, p.maxRows()-p.rows)
}

// reserve makes room for one row, or returns false. An empty pipe takes any row.
func (p *pipe) reserve(size int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rows > 0 && (p.rows >= p.maxRows() || p.bytes+size > p.lead.cfg.BufferBytes) {
		return false
	}
	p.rows++
	p.bytes += size
	return true
}

// free gives reserved room back.
func (p *pipe) free(size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freeLocked(size)
}

func (p *pipe) freeLocked(size int) {
	p.rows--
	p.bytes -= size
	if p.vacantLocked() {
		signal(p.lead.space)
	}
}

// push adds rows for which room is reserved; first puts them before the others.
func (p *pipe) push(first bool, entries ...*entry) {
	if len(entries) == 0 {
		return
	}
	p.mu.Lock()
	if first {
		for _, e := range entries {
			p.rows++
			p.bytes += e.size
		}
		p.entries = slices.Insert(p.entries, 0, entries...)
	} else {
		p.entries = append(p.entries, entries...)
	}
	p.mu.Unlock()
	signal(p.more)
}

// take waits for rows and returns the next batch, or nil when ctx ends.
func (p *pipe) take(ctx context.Context) []*entry {
	for ctx.Err() == nil {
		batch, passed, left := p.cut()
		p.lead.giveBack(passed...)
		if left {
			signal(p.more) // for the next sender
		}
		if len(batch) > 0 {
			return batch
		}
		select {
		case <-ctx.Done():
		case <-p.more:
		}
	}
	return nil
}

// cut removes a batch from the front, and what may not be sent now after all.
func (p *pipe) cut() (batch, passed []*entry, left bool) {
	rows, bytes, _ := p.gate.limits()
	size := orbit.BatchOverhead
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for ; n < len(p.entries); n++ {
		e := p.entries[n]
		if !p.lead.passes(p.gate, e) {
			passed = append(passed, e)
			continue
		}
		rows = min(rows, e.company(rows, p.lead.ramp.size()))
		size += e.item().Size()
		if len(batch) > 0 && (len(batch) >= rows || size > bytes) {
			break
		}
		batch = append(batch, e)
	}
	for _, e := range p.entries[:n] {
		p.freeLocked(e.size)
	}
	clear(p.entries[:n]) // the array lives on
	p.entries = p.entries[n:]
	return batch, passed, len(p.entries) > 0
}
