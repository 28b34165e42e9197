package retention

// SetBound makes transactions of r small.
func (r *Retention) SetBound(tasks int, rows, bytes int64, loose int) {
	r.bound = bound{tasks: tasks, rows: rows, bytes: bytes, loose: loose}
}

// Rows is how many rows c are in all.
func (c Counts) Rows() int64 { return c.rows() }
