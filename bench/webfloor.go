package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/orbitkit/orbit"
)

// A webLoop is the hand-written loop behind HTTP: each submit is a request of the size of
// ours to a handler that looks into nothing, and is answered after its commit. It tells how
// much of the way from a submit to its end is HTTP, which the loop by itself has none of.
// Workers are still goroutines.
type webLoop struct {
	*floorLoop
	server *http.Server
	client *http.Client
	url    string
	body   []byte
}

func newWebLoop(ctx context.Context, o options, creds orbit.Credentials, body []byte) (*webLoop, error) {
	loop, err := newFloorLoop(ctx, o, creds)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		loop.close()
		return nil, err
	}
	f := &webLoop{
		floorLoop: loop, url: "http://" + listener.Addr().String(), body: body,
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: submitters}},
	}
	f.server = &http.Server{Handler: http.HandlerFunc(f.serve)}
	go f.server.Serve(listener)
	return f, nil
}

func (f *webLoop) close() {
	f.server.Close()
	f.floorLoop.close()
}

func (f *webLoop) serve(w http.ResponseWriter, r *http.Request) {
	i, err := strconv.Atoi(r.Header.Get("Number"))
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
	}
	task := ""
	if err == nil {
		task, err = f.accepted(r.Header.Get("Idempotency-Key"), i)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":%q}`, task)
}

func (f *webLoop) submit(ctx context.Context, key string, i int) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(f.body))
	if err != nil {
		return err
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Number", strconv.Itoa(i))
	answer, err := f.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("the loop behind HTTP answers %s", answer.Status)
	}
	return nil
}
