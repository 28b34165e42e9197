package guardtest

import "time"

// SetPatience shortens how long a clause may last, and returns what sets it back.
func SetPatience(d time.Duration) (restore func()) {
	before := patience
	patience = d
	return func() { patience = before }
}
