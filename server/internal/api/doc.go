// Package api is the HTTP interface of a task server: routes, headers, bodies and the
// envelope of every answer.
//
// Each answer, be it a success or an error, is one JSON object with the request_id that
// also is the header X-Request-ID. Errors come from a closed set of codes; what nobody
// foresaw is 503 UNAVAILABLE, since its outcome is unknown. No answer and no log line
// holds a token, a statement or a payload.
package api
