package relay

import "log/slog"

// An outage logs that something fails once when it begins and once when it has ended.
type outage struct{ down bool }

func (o *outage) report(log *slog.Logger, act string, err error) {
	switch {
	case err != nil && !o.down:
		log.Error("database fails", "act", act, "err", err)
	case err == nil && o.down:
		log.Info("database works again", "act", act)
	}
	o.down = err != nil
}
