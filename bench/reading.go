package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/orbitkit/orbit"
)

// benchReading compares strict reading with digest of a submit of 1 KiB with the simple
// way: decode into any, with the numbers kept, encode with sorted names, SHA-256. The
// simple way checks none of the rules.
func benchReading(_ context.Context, o options) error {
	body, err := reading()
	if err != nil {
		return err
	}
	const each = 4000
	r := ratio{name: fmt.Sprintf("strict read and digest, %d bytes", len(body))}
	for range o.pairs {
		ours, err := perSecond(each, func() error { _, err := orbit.ParseSubmission(body); return err })
		if err != nil {
			return err
		}
		floor, err := perSecond(each, func() error { return simpleWay(body) })
		if err != nil {
			return err
		}
		r.add(ours, floor)
	}
	r.print()
	return nil
}

// reading is a request of about 1 KiB with names, numbers and texts as business has them.
func reading() ([]byte, error) {
	r := request(0)
	var payload bytes.Buffer
	payload.WriteString(`{"operation_ref":"operation-00000001","lines":[`)
	for i := 0; payload.Len() < 800; i++ {
		if i > 0 {
			payload.WriteByte(',')
		}
		fmt.Fprintf(&payload, `{"sku":"A-%d","count":%d,"price":"12.50","note":"as agreed"}`, i, i)
	}
	payload.WriteString(`]}`)
	r.Payload = payload.Bytes()
	body, _, err := r.Freeze()
	return body, err
}

func simpleWay(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err
	}
	text, err := json.Marshal(v)
	sha256.Sum256(text)
	return err
}

func perSecond(n int, f func() error) (float64, error) {
	begin := time.Now()
	for range n {
		if err := f(); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(begin).Seconds(), nil
}
