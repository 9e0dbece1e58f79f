// Bench measures this library beside the bare work it does and beside other
// queues with a webhook worker on them, in one run on one machine. README.md says
// what is measured, how, and why the others are set up as they are.
//
//	go -C bench run . -quick              # everything, small, in less than a minute
//	go -C bench run .                     # throughput
//	go -C bench run . -scenario all -full # everything at the goals' own scale
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

var scenarios = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"throughput", (*bench).throughput},
	{"latency", (*bench).latency},
	{"isolation", (*bench).isolation},
	{"backlog", (*bench).backlog},
	{"fanout", (*bench).fanout},
	{"memory", (*bench).memory},
	{"idle", (*bench).idle},
	{"verify", (*bench).verify},
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == child {
		os.Exit(childMain(os.Args[2]))
	}
	os.Exit(parentMain())
}

func parentMain() int {
	names := make([]string, len(scenarios))
	for i, s := range scenarios {
		names[i] = s.name
	}
	b := &bench{}
	scenario := flag.String("scenario", "", strings.Join(names, ", ")+", several of them with commas, or all; defaults to throughput, with -quick to all")
	flag.BoolVar(&b.quick, "quick", false, "smaller and fewer, less than a minute for everything")
	flag.BoolVar(&b.full, "full", false, "the scale that the goals are for: 5,000,000 pending in the backlog scenario")
	flag.IntVar(&b.rounds, "rounds", 5, "how often each contender runs, in turns; 3 with -quick, as far as time allows")
	flag.IntVar(&b.pending, "pending", 0, "how many are pending in the backlog scenario; defaults to 1,000,000")
	only := flag.String("only", "", "systems to run beside the bare loop in the throughput scenario, with commas, such as sqlite,goqite")
	flag.StringVar(&b.profile, "profile", "", "a `directory` to write CPU, allocation, block and mutex profiles of the SQLite run to")
	flag.StringVar(&b.postgres, "postgres", "postgres://postgres@127.0.0.1:5432/test", "a PostgreSQL `database`; a schema is made in it, and dropped")
	flag.StringVar(&b.redis, "redis", "127.0.0.1:6379", "the `address` of a Redis server; a queue is made in it, and deleted")
	flag.StringVar(&b.dir, "dir", "", "a `directory` for temporary files, on the disk to measure; defaults to the system's")
	flag.Parse()

	chosen := strings.Split(*scenario, ",")
	switch {
	case flag.NArg() > 0:
		fmt.Fprintln(os.Stderr, "bench: unexpected:", flag.Arg(0))
		return 2
	case *scenario == "" && b.quick, *scenario == "all":
		chosen = names
	case *scenario == "":
		chosen = names[:1]
	}
	for _, c := range chosen {
		if !slices.Contains(names, c) {
			fmt.Fprintf(os.Stderr, "bench: no such scenario: %s; there are %s and all\n", c, strings.Join(names, ", "))
			return 2
		}
	}
	if *only != "" {
		b.only = strings.Split(*only, ",")
	}
	if b.quick {
		b.rounds = min(b.rounds, 3)
	}
	if b.profile != "" {
		dir, err := filepath.Abs(b.profile)
		if err == nil {
			err = os.MkdirAll(dir, 0o750)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 2
		}
		b.profile = dir
	}
	switch {
	case b.pending > 0:
	case b.quick:
		b.pending = 100_000
	case b.full:
		b.pending = 5_000_000
	default:
		b.pending = 1_000_000
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	b.machine(ctx)
	for _, s := range scenarios {
		if !slices.Contains(chosen, s.name) || ctx.Err() != nil {
			continue
		}
		if err := s.run(b, ctx); err != nil {
			b.fail("%s: %v", s.name, err)
		}
	}
	b.printGoals()
	fmt.Fprintf(os.Stderr, "-- done in %v\n", time.Since(began).Round(time.Second))
	if b.failed {
		return 1
	}
	return 0
}

func postgresInfo(ctx context.Context, url string) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "no PostgreSQL"
	}
	defer func() { _ = conn.Close(ctx) }()
	var version, sync string
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version'), current_setting('synchronous_commit')").Scan(&version, &sync); err != nil {
		return "no PostgreSQL"
	}
	return "PostgreSQL " + version + ", synchronous_commit " + sync
}

func redisInfo(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	info, err := client.InfoMap(ctx, "server", "persistence").Result()
	if err != nil {
		return "no Redis"
	}
	text := "Redis " + info["Server"]["redis_version"] + ", append-only file off"
	if info["Persistence"]["aof_enabled"] == "1" {
		text = strings.TrimSuffix(text, "off") + "on"
	}
	return text
}
