package main

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"maps"
	"sync"
	"time"
)

// A bucket is what the guard needs of an object store, such as S3 or GCS: reads that see
// every write that was answered before, and writes under a condition.
type bucket interface {
	// get returns errNoObject if there is none. The object's time is that of the
	// store's clock in the answer (the Date header), with or without an object.
	get(ctx context.Context, name string) (object, error)

	// put replaces the object if its ETag is still etag (If-Match), or makes it if etag
	// is empty and there is none (If-None-Match: *). errChanged (412, and the 409 of two
	// conditional writes at once) says that nothing was written. After any other error
	// nobody knows.
	put(ctx context.Context, name, etag string, body []byte, metadata map[string]string) (newETag string, err error)
}

// An object is a body with the ETag that a later put must name.
type object struct {
	body     []byte
	metadata map[string]string
	etag     string
	at       time.Time
}

var (
	errNoObject = errors.New("no such object")
	errChanged  = errors.New("the object is another by now")
)

// A memoryBucket behaves like S3 in what matters here. As there, the ETag is a digest of
// the body alone: metadata does not change it.
type memoryBucket struct {
	mu      sync.Mutex
	objects map[string]object
	puts    int // that wrote

	afterGet func()       // runs after each read, outside of the lock; may be nil
	afterPut func() error // may lose the answer to a write that was done; may be nil
}

func newMemoryBucket() *memoryBucket { return &memoryBucket{objects: make(map[string]object)} }

func (b *memoryBucket) get(_ context.Context, name string) (object, error) {
	o, there := b.read(name)
	if b.afterGet != nil {
		b.afterGet()
	}
	if !there {
		return o, errNoObject
	}
	return o, nil
}

func (b *memoryBucket) read(name string) (o object, there bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, there = b.objects[name]
	o.body, o.metadata, o.at = bytes.Clone(o.body), maps.Clone(o.metadata), time.Now().UTC()
	return o, there
}

func (b *memoryBucket) put(_ context.Context, name, etag string, body []byte, metadata map[string]string) (string, error) {
	sum := md5.Sum(body) // what S3 takes for an object sent whole
	o := object{body: bytes.Clone(body), metadata: maps.Clone(metadata), etag: hex.EncodeToString(sum[:])}
	if !b.write(name, etag, o) {
		return "", errChanged
	}
	if b.afterPut != nil {
		if err := b.afterPut(); err != nil {
			return "", err
		}
	}
	return o.etag, nil
}

func (b *memoryBucket) write(name, etag string, o object) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.objects[name].etag != etag {
		return false
	}
	b.objects[name] = o
	b.puts++
	return true
}
