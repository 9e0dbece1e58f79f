package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynq (github.com/hibiken/asynq): one task for each delivery, in a queue of
// its own; the handler signs and POSTs. Tasks that succeed are not kept, which is
// its default and costs it least. See README.md for the settings and why they are
// its best.
type asynqSystem struct {
	redis     *redis.Client
	client    *asynq.Client
	server    *asynq.Server
	inspector *asynq.Inspector
	queue     string
	poster    *poster
}

// asynqPublishers is how many goroutines enqueue: asynq has no call for many
// tasks, and one enqueues but 8,000 a second.
const asynqPublishers = 16

type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(v ...any) {
	fmt.Fprintln(os.Stderr, v...)
	os.Exit(1)
}

func openAsynq(ctx context.Context, s setup) (system, error) {
	client := redis.NewClient(&redis.Options{Addr: s.Redis, PoolSize: 64})
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, skipped("no Redis at -redis: %v", err)
	}
	a := &asynqSystem{
		redis:     client,
		client:    asynq.NewClientFromRedisClient(client),
		inspector: asynq.NewInspectorFromRedisClient(client),
		queue:     fmt.Sprintf("webhook-bench-%d-%d", os.Getpid(), time.Now().UnixNano()),
		poster:    newPoster(s.URLs, bareWorkers),
	}
	a.server = asynq.NewServerFromRedisClient(client, asynq.Config{
		Concurrency:       bareWorkers,
		Queues:            map[string]int{a.queue: 1},
		TaskCheckInterval: 2 * time.Millisecond, // default 1 s
		Logger:            silent{},
		LogLevel:          asynq.FatalLevel,
	})
	return a, a.server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		number, body, _ := bytes.Cut(t.Payload(), []byte("\n"))
		endpoint, err := strconv.Atoi(string(number))
		if err != nil {
			return err
		}
		return a.poster.post(endpoint, body, t.ResultWriter().TaskID())
	}))
}

func (a *asynqSystem) publish(ctx context.Context, batch []json.RawMessage) error {
	tasks := make(chan *asynq.Task)
	failed := make(chan error, asynqPublishers)
	var wg sync.WaitGroup
	for range asynqPublishers {
		wg.Go(func() {
			for t := range tasks {
				// Timeout 0 would mean the default of 30 minutes, which costs the
				// same: asynq has a context with a deadline for each task anyway.
				if _, err := a.client.EnqueueContext(ctx, t, asynq.Queue(a.queue), asynq.MaxRetry(3)); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		})
	}
	var err error
	for _, data := range batch {
		var body []byte
		if body, err = envelope(data); err != nil {
			break
		}
		for e := range a.poster.urls {
			payload := append(strconv.AppendInt(nil, int64(e), 10), '\n')
			tasks <- asynq.NewTask("deliver", append(payload, body...))
		}
	}
	close(tasks)
	wg.Wait()
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	return err
}

// recorded relies on nothing being published meanwhile.
func (a *asynqSystem) recorded(ctx context.Context, _ int) (time.Time, error) {
	return pollDone(ctx, 2*time.Millisecond, func() (bool, error) {
		info, err := a.inspector.GetQueueInfo(a.queue)
		if err != nil {
			return false, err
		}
		if info.Retry+info.Archived > 0 {
			return false, fmt.Errorf("%d tasks failed", info.Retry+info.Archived)
		}
		return info.Pending+info.Active == 0, nil
	})
}

// databaseCPU asks Redis itself.
func (a *asynqSystem) databaseCPU() time.Duration {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	info, err := a.redis.Info(ctx, "cpu").Result()
	if err != nil {
		return 0
	}
	var total float64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "used_cpu_sys", "used_cpu_user", "used_cpu_sys_children", "used_cpu_user_children":
			seconds, _ := strconv.ParseFloat(value, 64)
			total += seconds
		}
	}
	return time.Duration(total * float64(time.Second))
}

func (a *asynqSystem) close() error {
	a.server.Shutdown()
	a.poster.close()
	err := a.inspector.DeleteQueue(a.queue, true)
	// What asynq leaves of a deleted queue: how much it processed on which day.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	keys := a.redis.Scan(ctx, 0, "asynq:{"+a.queue+"}:*", 100).Iterator()
	for keys.Next(ctx) {
		err = errors.Join(err, a.redis.Del(ctx, keys.Val()).Err())
	}
	return errors.Join(err, keys.Err(), a.redis.Close())
}
