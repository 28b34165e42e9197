// Guarded-object guards the objects of a store with conditional writes, such as S3 or GCS:
// a store that has no transactions, but replaces an object only if its ETag is still the
// one that was read. Token, attempt and operations stand in the guarded body beside the
// content, since an ETag ignores metadata. It passes the suite of package guardtest, as
// guard_test.go proves, and is there to be copied:
//
//	guard.go   apply, raise and lookup, each one conditional write
//	body.go    what stands in the object
//	bucket.go  what is needed of the store, and one in memory
//	valid.go   the rules for names and tokens
//
// The demonstration needs nothing. From the repository's root:
//
//	go run ./examples/guarded-object
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/orbitkit/orbit/resourceguard"
)

func main() {
	if err := demonstrate(context.Background(), os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "guarded-object: %v\n", err)
		os.Exit(1)
	}
}

func demonstrate(ctx context.Context, out io.Writer) error {
	store := newMemoryBucket()
	g := &guard{bucket: store, authorise: func(context.Context, string, string) error { return nil }}
	for _, part := range []func(context.Context, io.Writer, *guard, *memoryBucket) error{writeOnce, loseAnswer, comeTooLate, ignoreMetadata} {
		if err := part(ctx, out, g, store); err != nil {
			return err
		}
	}
	return nil
}

// draft is an operation that adds a line to a document.
func draft(token uint64, line string) (resourceguard.Write, contentFunc) {
	w := resourceguard.Write{
		Namespace: "shop", Key: "document/7", Token: token, Attempt: fmt.Sprintf("attempt-%d", token),
		Operation: "add " + line, Content: []byte(line),
	}
	return w, func(content []byte) (next, receipt []byte, err error) {
		next = fmt.Appendf(content, "%s\n", line)
		return next, fmt.Appendf(nil, "%d bytes", len(next)), nil
	}
}

func writeOnce(ctx context.Context, out io.Writer, g *guard, store *memoryBucket) error {
	w, f := draft(5, "first")
	written, err := g.apply(ctx, w, f)
	if err != nil {
		return err
	}
	repeated, err := g.apply(ctx, w, f)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "write: %v receipt=%q repeat: %v receipt=%q puts=%d\n", written.Verdict, written.Receipt, repeated.Verdict, repeated.Receipt, store.puts)
	return nil
}

var errLost = errors.New("connection reset")

// loseAnswer has a write done whose answer is lost: nobody knows, until it is sent again.
func loseAnswer(ctx context.Context, out io.Writer, g *guard, store *memoryBucket) error {
	store.afterPut = func() error { return errLost }
	w, f := draft(5, "second")
	_, lost := g.apply(ctx, w, f)
	store.afterPut = nil
	again, err := g.apply(ctx, w, f)
	if err != nil {
		return err
	}
	content, err := g.content(ctx, w.Namespace, w.Key)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "answer lost: unknown=%t sent again: %v content=%q\n", errors.Is(lost, errLost), again.Verdict, content)
	return nil
}

// comeTooLate has a successor raise the object after a writer has read it and before it
// writes.
func comeTooLate(ctx context.Context, out io.Writer, g *guard, store *memoryBucket) error {
	reads := 0
	store.afterGet = func() {
		if reads++; reads > 1 {
			return
		}
		successor := resourceguard.Fence{Namespace: "shop", Key: "document/7", Token: 7, Attempt: "attempt-7"}
		if err := g.raise(ctx, successor); err != nil {
			fmt.Fprintln(out, err)
		}
	}
	w, f := draft(5, "late")
	_, err := g.apply(ctx, w, f)
	store.afterGet = nil
	var stale *resourceguard.StaleError
	if !errors.As(err, &stale) {
		return fmt.Errorf("a late write ended with %v, want stale", err)
	}
	fmt.Fprintf(out, "late: refused token %d, the object has seen %d\n", stale.Presented, stale.Highest)
	return nil
}

// ignoreMetadata shows why the token must not stand in the metadata.
func ignoreMetadata(ctx context.Context, out io.Writer, _ *guard, store *memoryBucket) error {
	old, err := store.put(ctx, "unguarded", "", []byte("content"), map[string]string{"token": "5"})
	if err != nil {
		return err
	}
	if _, err := store.put(ctx, "unguarded", old, []byte("content"), map[string]string{"token": "7"}); err != nil {
		return err
	}
	_, err = store.put(ctx, "unguarded", old, []byte("late content"), map[string]string{"token": "5"})
	fmt.Fprintf(out, "token in metadata: a late write passes=%t\n", err == nil)
	return nil
}
