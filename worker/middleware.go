package worker

import (
	"maps"
	"slices"
)

// A Middleware puts something around a handler, such as a span, a log line or a limit: it
// returns the handler that is called instead. It is asked once for each handler, by
// NewWorker, and must not return nil. What it returns runs where the handler runs: under
// the handler's context, with the right to execute, and a panic in it is one of the
// handler. It must hand on the handler's error as it is or wrap it with %w, since the
// error decides the outcome.
type Middleware func(next HandlerFunc) HandlerFunc

// Wrap puts middleware around f, the first outermost.
func Wrap(f HandlerFunc, around ...Middleware) HandlerFunc {
	for _, m := range slices.Backward(around) {
		f = m(f)
	}
	return f
}

// wrapped returns the handlers within their middleware.
func (c Config) wrapped() (map[Handler]HandlerFunc, error) {
	handlers := maps.Clone(c.Handlers)
	for h, f := range handlers {
		for i, m := range slices.Backward(c.Middleware) {
			if f = m(f); f == nil {
				return nil, refuse("Middleware", "[%d] must not return nil (for handler %q)", i, h.Name)
			}
		}
		handlers[h] = f
	}
	return handlers, nil
}
