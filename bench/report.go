package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// bench is one run of the program: its flags, and what it has to say.
type bench struct {
	quick    bool
	full     bool
	rounds   int
	pending  int      // of the backlog scenario
	only     []string // contenders; nil: all
	profile  string
	postgres string
	redis    string
	dir      string // for temporary files

	goals  []string // the lines that end the output
	failed bool
}

// title begins a scenario.
func (b *bench) title(name, format string, args ...any) {
	scale := ""
	if b.quick {
		scale = " [quick: a smaller scale]"
	}
	fmt.Printf("\n== %s%s: %s\n\n", name, scale, fmt.Sprintf(format, args...))
}

func (b *bench) note(format string, args ...any) { fmt.Printf("   "+format+"\n", args...) }

func (b *bench) fail(format string, args ...any) {
	b.failed = true
	fmt.Printf("   FAILED: "+format+"\n", args...)
}

// progress says what runs now, apart from the results.
func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "-- "+format+"\n", args...)
}

// goal adds a line to the end of the output.
func (b *bench) goal(name string, value float64, op string, goal float64) {
	b.goals = append(b.goals, fmt.Sprintf("ratio %s %s goal %s%s", name, decimal(value), op, strconv.FormatFloat(goal, 'f', -1, 64)))
}

// decimal has three significant digits at least, and no needless ones.
func decimal(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case v < 1000:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

func (b *bench) printGoals() {
	if len(b.goals) == 0 {
		return
	}
	scale := ""
	if b.quick {
		scale = ", at the smaller scale of -quick"
	}
	fmt.Printf("\n== Goals%s\n\n", scale)
	for _, line := range b.goals {
		fmt.Println(line)
	}
}

// limit bounds one child's time.
func (b *bench) limit(most time.Duration) time.Duration {
	if b.quick {
		return min(most, 30*time.Second)
	}
	return most
}

// tempDir makes a directory and returns what removes it.
func (b *bench) tempDir() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp(b.dir, "webhook-bench-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}

// machine says what the figures were made on.
func (b *bench) machine(ctx context.Context) {
	cpuName := ""
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpuName = ", " + strings.TrimSpace(value)
				break
			}
		}
	}
	load := ""
	if l, err := os.ReadFile("/proc/loadavg"); err == nil {
		load = ", load " + strings.Join(strings.Fields(string(l))[:3], " ")
	}
	fmt.Printf("%s %s/%s, %d cores%s%s, GOGC %s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.GOMAXPROCS(0), cpuName, load, cmp.Or(os.Getenv("GOGC"), "100"))
	fmt.Printf("files in %s; %s; %s\n", cmp.Or(b.dir, os.TempDir()), postgresInfo(ctx, b.postgres), redisInfo(ctx, b.redis))
}

// table prints rows in columns.
type table struct {
	w *tabwriter.Writer
}

func (b *bench) table(columns ...string) *table {
	t := &table{tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)}
	row := make([]any, len(columns))
	for i, c := range columns {
		row[i] = c
	}
	t.row(row...)
	return t
}

func (t *table) row(cells ...any) {
	for _, c := range cells {
		fmt.Fprintf(t.w, "%v\t", c)
	}
	fmt.Fprintln(t.w)
}

func (t *table) print() { _ = t.w.Flush() }

func median[T cmp.Ordered](values []T) T {
	values = slices.Clone(values)
	slices.Sort(values)
	return values[len(values)/2]
}

// quantile returns a quantile of sorted values.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func mean(values []time.Duration) time.Duration {
	var total time.Duration
	for _, v := range values {
		total += v
	}
	return total / time.Duration(max(len(values), 1))
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func mib(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return strconv.FormatFloat(float64(bytes)/(1<<20), 'f', 0, 64)
}
