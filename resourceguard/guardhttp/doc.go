// Package guardhttp brings the token and the identity of an operation to the owner of a
// resource over HTTP, and the guard's answer back.
//
// A worker sets the headers with [Set]. At the owner's, [Require] reads them strictly
// before the handler, which takes the write from its context, adds the content and hands it
// to the guard; [Refuse] answers what the guard refuses:
//
//	http.Handle("POST /stock", authenticated(guardhttp.Require(http.HandlerFunc(reserve))))
//
//	func reserve(w http.ResponseWriter, r *http.Request) {
//		write, _ := guardhttp.Write(r.Context())
//		write.Content = body // of the request, read within a bound
//		err := guard.Transact(r.Context(), db, func(ctx context.Context, tx *sql.Tx) error {
//			_, err := guard.Apply(ctx, tx, write, takeOut)
//			return err
//		})
//		if guardhttp.Refuse(w, err) {
//			return
//		}
//		…
//	}
//
// The headers are claims of the caller. Authenticate it first: the guard's AuthoriseFunc
// then decides from the context whether it may use the key (RG-014).
//
// # Headers
//
// Each is required, stands once and is not empty:
//
//	Orbit-Namespace   id of the namespace that issued the token
//	Orbit-Key         the task's concurrency_key
//	Orbit-Token       the task's concurrency_token: decimal, 1 to 18446744073709551615, no sign, no leading zero
//	Orbit-Attempt     id of the attempt
//	Orbit-Operation   identity of the operation, the same in every retry
//
// All but the token are texts of up to 191 Unicode characters, as the guard takes them. Printable
// ASCII but "%" stands for itself; every other byte of their UTF-8, blanks included, is
// written as "%" and two upper-case hexadecimal digits. No other form is taken, so that two
// texts are equal if and only if their headers are.
//
// # Answers
//
// Refusals have the media type application/problem+json (RFC 9457). Their member code
// is what programs branch on:
//
//	400 invalid              header (or field) and rule
//	403 not_authorised
//	409 token_collision      the token belongs to another attempt: raise an alarm; already_applied
//	409 operation_conflict   the operation was applied with other content
//	412 stale                presented, highest (decimal strings) and already_applied
//	503 retry                with Retry-After; nothing is changed, send the same again
//	503 unknown              with Retry-After; it may be in force, send the same again
package guardhttp
