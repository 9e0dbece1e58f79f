package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// result is what a run of tests came to.
type result struct {
	built    bool
	passed   bool
	timedOut bool
	ran      []string // tests and subtests, in the order in which they began
	failed   []string // in the order in which they ended, so subtests come first
	output   string
}

// event is a line of go test -json (go doc test2json).
type event struct {
	Action      string
	Test        string
	Output      string
	FailedBuild string
}

// goTest runs tests of one package by their full names. The error is not about
// the tests.
func goTest(ctx context.Context, dir, pkg string, names []string) (result, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-vet=off", "-failfast", "-timeout=5m", "-ldflags=-s -w", //nolint:gosec // names of our own
		"-run="+pattern(names), pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		return result{}, errors.Join(err, ctx.Err())
	}
	r := result{built: true, passed: err == nil}
	var output strings.Builder
	for lines := json.NewDecoder(bytes.NewReader(stdout)); ; {
		var e event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return result{}, fmt.Errorf("go test -json: %w: %s%s", err, stdout, stderr.Bytes())
		}
		output.WriteString(e.Output)
		switch {
		case e.Action == "build-fail" || e.FailedBuild != "":
			r.built = false
		case e.Action == "run":
			r.ran = append(r.ran, e.Test)
		case e.Action == "fail" && e.Test != "":
			r.failed = append(r.failed, e.Test)
		}
		r.timedOut = r.timedOut || strings.HasPrefix(e.Output, "panic: test timed out after")
	}
	r.output = output.String() + stderr.String()
	return r, nil
}

// pattern returns the -run that matches tests by their full names. A slash is a
// slash, whether it separates subtests or is part of the name of one.
func pattern(names []string) string {
	alternatives := make([]string, len(names))
	for i, name := range names {
		parts := strings.Split(name, "/")
		for j := range parts {
			parts[j] = "^" + regexp.QuoteMeta(parts[j]) + "$"
		}
		alternatives[i] = strings.Join(parts, "/")
	}
	return strings.Join(alternatives, "|")
}

// copyTree copies what belongs to the module.
func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		switch {
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "node_modules"):
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(target, 0o700)
		case !entry.Type().IsRegular() || entry.Name() == ".git": // a worktree's
			return nil
		}
		content, err := os.ReadFile(path) //nolint:gosec // one of our own
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o600) //nolint:gosec // in a directory of our own
	})
}
