package relay

import (
	"encoding/json"
	"net/http"
)

// Handler serves what other processes on the same machine ask a relay:
//
//	POST /nudge    look for due rows at once; carries nothing, answers 204
//	GET  /healthz  200 while the process runs
//	GET  /status   Stats as JSON
//
// It asks for no credential: serve it on a loopback address only.
func (r *Relay) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /nudge", func(w http.ResponseWriter, _ *http.Request) {
		r.Notify()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(r.Stats())
	})
	return mux
}
