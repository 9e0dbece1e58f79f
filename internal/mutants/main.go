// Command mutants breaks the module on purpose, in one place at a time, and
// checks that a test fails for it. One that survives is a missing test.
//
//	go run ./internal/mutants             # all of them
//	go run ./internal/mutants -run lease  # those whose name or file contains it
//	go run ./internal/mutants -part 2/5   # every fifth, beginning with the second
//
// It works on copies in a temporary directory. The mutants are in table_*.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A mutant is one promise broken: old, which file has exactly once, becomes new.
type mutant struct {
	name string
	file string
	old  string
	new  string
	pkg  string // whose tests are to notice, as go test takes it
	run  string // which tests, by their full names, with | between them
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("mutants: ")
	only := flag.String("run", "", "only mutants whose name or file contains this")
	part := flag.String("part", "1/1", "k/n: every n-th mutant, beginning with the k-th")
	jobs := flag.Int("j", 2, "how many at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *only, *part, *jobs)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, only, part string, jobs int) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	chosen, err := choose(table, only, part)
	if err != nil {
		return err
	}
	for i := range chosen {
		if _, err := chosen[i].apply(root); err != nil {
			return err
		}
	}
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	dirs := make([]string, max(1, min(jobs, len(chosen))))
	for i := range dirs {
		dirs[i] = filepath.Join(temp, fmt.Sprint(i))
		if err := copyTree(dirs[i], root); err != nil {
			return err
		}
	}

	start := time.Now()
	if err := unmutated(ctx, dirs[0], chosen); err != nil {
		return err
	}
	fmt.Fprintf(out, "unmutated, all their tests pass (%.0fs)\n", time.Since(start).Seconds())
	lost := hunt(ctx, out, dirs, chosen)
	fmt.Fprintf(out, "%d mutants, %d killed (%.0fs)\n", len(chosen), len(chosen)-lost, time.Since(start).Seconds())
	if lost > 0 {
		return fmt.Errorf("%d of %d were not killed", lost, len(chosen))
	}
	return ctx.Err()
}

// moduleRoot returns the directory of the module that the command runs in.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if filepath.Base(file) != "go.mod" {
		return "", errors.New("run it inside the module")
	}
	return filepath.Dir(file), nil
}

// choose returns the mutants asked for.
func choose(all []mutant, only, part string) ([]mutant, error) {
	var k, n int
	if _, err := fmt.Sscanf(part, "%d/%d", &k, &n); err != nil || k < 1 || k > n {
		return nil, fmt.Errorf("-part %q is not of the form k/n", part)
	}
	var chosen []mutant
	for i, m := range all {
		if i%n == k-1 && strings.Contains(m.name+"\n"+m.file, only) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, errors.New("no such mutant")
	}
	return chosen, nil
}

// apply returns the mutant's file as it is to be.
func (m *mutant) apply(dir string) ([]byte, error) {
	source, err := os.ReadFile(filepath.Join(dir, m.file)) //nolint:gosec // one of our own
	if err != nil {
		return nil, fmt.Errorf("%q: %w", m.name, err)
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		return nil, fmt.Errorf("%q: %s has the old text %d times, not once; bring the table up to date", m.name, m.file, n)
	}
	if m.old == m.new {
		return nil, fmt.Errorf("%q changes nothing", m.name)
	}
	return []byte(strings.Replace(string(source), m.old, m.new, 1)), nil
}

// unmutated runs the tests of all mutants once and wants to see them pass.
func unmutated(ctx context.Context, dir string, mutants []mutant) error {
	tests := map[string]map[string]bool{} // by package
	for _, m := range mutants {
		if tests[m.pkg] == nil {
			tests[m.pkg] = map[string]bool{}
		}
		for name := range strings.SplitSeq(m.run, "|") {
			tests[m.pkg][name] = true
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		names := slices.Sorted(maps.Keys(tests[pkg]))
		r, err := goTest(ctx, dir, pkg, names)
		if err != nil {
			return err
		}
		if !r.built || len(r.failed) > 0 || !r.passed {
			return fmt.Errorf("unmutated, the tests of %s fail:\n%s", pkg, r.output)
		}
		for _, name := range names {
			if !slices.Contains(r.ran, name) {
				return fmt.Errorf("%s has no test %s; bring the table up to date", pkg, name)
			}
		}
	}
	return nil
}

// hunt tries all mutants, one at a time in each directory, and returns how many
// were not killed.
func hunt(ctx context.Context, out io.Writer, dirs []string, mutants []mutant) (lost int) {
	var mu sync.Mutex
	var group sync.WaitGroup
	next := make(chan mutant)
	for _, dir := range dirs {
		group.Go(func() {
			for m := range next {
				start := time.Now()
				killer, detail := m.try(ctx, dir)
				mu.Lock()
				verdict := "killed  "
				if killer == "" {
					verdict, killer = "SURVIVED", detail
					lost++
				}
				fmt.Fprintf(out, "%s  %-62s %s (%.1fs)\n", verdict, m.name, killer, time.Since(start).Seconds())
				mu.Unlock()
			}
		})
	}
	for _, m := range mutants {
		next <- m
	}
	close(next)
	group.Wait()
	return lost
}

// try runs the mutant's tests on it and returns the name of the one that
// noticed, or why none did.
func (m *mutant) try(ctx context.Context, dir string) (killer, detail string) {
	path := filepath.Join(dir, m.file)
	source, err := os.ReadFile(path) //nolint:gosec // one of our own
	if err != nil {
		return "", err.Error()
	}
	mutated, err := m.apply(dir)
	if err != nil {
		return "", err.Error()
	}
	defer func() { _ = os.WriteFile(path, source, 0o600) }() //nolint:gosec // as before
	if err := os.WriteFile(path, mutated, 0o600); err != nil {
		return "", err.Error()
	}
	r, err := goTest(ctx, dir, m.pkg, strings.Split(m.run, "|"))
	switch {
	case err != nil:
		return "", err.Error()
	case !r.built:
		return "", "it does not compile:\n" + r.output
	case r.passed:
		return "", "the tests pass: " + m.run
	case r.timedOut: // says more of the machine than of the mutant
		return "", "the tests ran out of time:\n" + r.output
	case len(r.failed) == 0:
		return "", "no test failed, but the run did:\n" + r.output
	}
	return r.failed[0], ""
}
