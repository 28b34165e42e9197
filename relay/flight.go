package relay

import "sync"

// A flight knows which rows of a shard are somewhere between reader and ledger. It
// stands in for the claim that nobody writes.
type flight struct {
	mu      sync.Mutex
	rows    map[int64]bool // true: settled
	settled []int64
}

func newFlight() *flight { return &flight{rows: map[int64]bool{}} }

// beginRead is called before a read of the index. A row that is settled while a read
// runs may be in its result as it was before, so it is forgotten only when the next
// read begins.
func (f *flight) beginRead() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, seq := range f.settled {
		delete(f.rows, seq)
	}
	f.settled = f.settled[:0]
}

func (f *flight) has(seq int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, in := f.rows[seq]
	return in
}

func (f *flight) add(seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows[seq] = false
}

// drop gives a row back that was not settled: the next read finds it again.
func (f *flight) drop(seq int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.rows, seq)
}

func (f *flight) settle(seqs []int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, seq := range seqs {
		f.rows[seq] = true
	}
	f.settled = append(f.settled, seqs...)
}

// open returns how many rows are not settled.
func (f *flight) open() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.rows) - len(f.settled)
}
