package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// An asynqSystem is Asynq on a Redis of its own that flushes every command.
type asynqSystem struct {
	server    *privateServer
	client    *asynq.Client
	inspector *asynq.Inspector
	workers   int
	done      counter
}

func newAsynqSystem(server *privateServer, workers int) *asynqSystem {
	s := &asynqSystem{server: server, workers: workers}
	s.client, s.inspector = asynq.NewClient(s.redis()), asynq.NewInspector(s.redis())
	return s
}

func (s *asynqSystem) redis() asynq.RedisClientOpt {
	return asynq.RedisClientOpt{Addr: s.server.address, Password: s.server.password, PoolSize: 128}
}

func (s *asynqSystem) close() {
	s.client.Close()
	s.inspector.Close()
}

func (s *asynqSystem) fill(ctx context.Context, run string, n int) error {
	_, err := rate(64, n, func(i int) error { return s.submit(ctx, fmt.Sprintf("%s-%d", run, i), i) })
	return err
}

// submit gives the task an id, which is a promise like our idempotency key while the task
// is there.
func (s *asynqSystem) submit(ctx context.Context, key string, _ int) error {
	_, err := s.client.EnqueueContext(ctx, asynq.NewTask("bench.work", []byte(padding)), asynq.TaskID(key))
	return err
}

func (s *asynqSystem) work(context.Context) (func() error, error) {
	s.done.begin()
	server := asynq.NewServer(s.redis(), asynq.Config{Concurrency: s.workers, LogLevel: asynq.FatalLevel})
	err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		s.done.Add(1)
		return nil
	}))
	return func() error {
		server.Shutdown()
		return nil
	}, err
}

func (s *asynqSystem) ended(ctx context.Context, n int) error {
	if err := waitUntil(ctx, func() (bool, error) { return s.done.since() >= n, nil }); err != nil {
		return err
	}
	return waitUntil(ctx, func() (bool, error) {
		q, err := s.inspector.GetQueueInfo("default")
		if err != nil {
			return false, err
		}
		return q.Pending == 0 && q.Active == 0, nil
	})
}

func pingRedis(ctx context.Context, address, password string) error {
	c := redis.NewClient(&redis.Options{Addr: address, Password: password})
	defer c.Close()
	return c.Ping(ctx).Err()
}

// asynqLacks is what Asynq does not do of what ours does.
var asynqLacks = strings.Join([]string{
	"Asynq writes: the task and lists of ids; it forgets a task when it has ended; no identity that outlives the task, receipt, events, audit, attempt",
	"or result; dequeue and start are one step; no network between server and worker but Redis'",
}, " ")
