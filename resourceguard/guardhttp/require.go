package guardhttp

import (
	"context"
	"net/http"

	"github.com/orbitkit/orbit/resourceguard"
)

type writeKey struct{}

// Require is HTTP middleware: it calls next with the write of the request's headers in the
// context, see [Write], or answers 400 with the header and the rule that it breaks. next
// is not called then. A nil next is a mistake of set-up: as net/http does, Require panics,
// with a [*resourceguard.InvalidError].
func Require(next http.Handler) http.Handler {
	if f, is := next.(http.HandlerFunc); next == nil || is && f == nil {
		panic(&resourceguard.InvalidError{Field: "next", Rule: "must be given"})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		write, err := Parse(r.Header)
		if err != nil {
			Refuse(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), writeKey{}, write)))
	})
}

// Write returns the write that [Require] has read. Its Content is empty: the handler adds
// what is to be written, the same bytes in every repeat, and the guard refuses it without.
// It reports false behind no Require.
func Write(ctx context.Context) (resourceguard.Write, bool) {
	w, ok := ctx.Value(writeKey{}).(resourceguard.Write)
	return w, ok
}
