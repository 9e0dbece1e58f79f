package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Everything that is measured runs in a process of its own, this program
// started again: so its CPU time and its memory are its own, and one contender's
// garbage is not collected in the next one's time.
//
// A child reads what to do as one line of JSON from its standard input and writes
// what came of it as one line to its standard output. It ends when its standard
// input does, and so never outlives its parent.

// child is the first argument of a child process.
const child = "child"

// children are what a child process can be asked to be.
var children = map[string]func(ctx context.Context, spec []byte) (any, error){
	"receiver":   receiverChild,
	"throughput": task(throughputChild),
	"latency":    task(latencyChild),
	"isolation":  task(isolationChild),
	"backlog":    task(backlogChild),
	"fanout":     task(fanoutChild),
	"fill":       task(fillChild),
	"memory":     task(memoryChild),
	"idle":       task(idleChild),
	"verify":     task(verifyChild),
}

func task[Spec, Result any](f func(context.Context, Spec) (Result, error)) func(context.Context, []byte) (any, error) {
	return func(ctx context.Context, line []byte) (any, error) {
		var spec Spec
		if err := json.Unmarshal(line, &spec); err != nil {
			return nil, err
		}
		return f(ctx, spec)
	}
}

// reply is a child's last line.
type reply struct {
	Result  json.RawMessage `json:"result,omitempty"`
	Error   string          `json:"error,omitempty"`
	Skipped string          `json:"skipped,omitempty"`
}

// skip is the error of what cannot run here, such as a peer without its server.
type skip struct{ why string }

func (s *skip) Error() string { return "skipped: " + s.why }

func skipped(format string, args ...any) error { return &skip{fmt.Sprintf(format, args...)} }

// childMain is main in a child process.
func childMain(name string) int {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench child: no specification:", err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
		select {
		case <-done:
		case <-time.After(4 * time.Second):
			os.Exit(1)
		}
	}()
	run, ok := children[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "bench child: unknown:", name)
		return 1
	}
	result, err := run(ctx, line)
	close(done)
	var r reply
	var s *skip
	switch {
	case errors.As(err, &s):
		r.Skipped = s.why
	case err != nil:
		r.Error = err.Error()
	default:
		if r.Result, err = json.Marshal(result); err != nil {
			r.Error = err.Error()
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(r)
	return 0
}

// process is a running child.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(name string, spec any) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(exe, child, name)} //nolint:gosec,noctx // this program itself; stop ends it
	p.cmd.Stderr = os.Stderr
	// An interrupt from the terminal is for the parent alone, which then ends
	// the children in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// stop ends a child: politely, then by killing it.
func (p *process) stop() {
	_ = p.in.Close()
	ended := make(chan struct{})
	go func() {
		_ = p.cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-ended
	}
}

// spawn runs a child to its end, for no longer than limit.
func spawn[Result any](ctx context.Context, limit time.Duration, name string, spec any) (Result, error) {
	var result Result
	p, err := start(name, spec)
	if err != nil {
		return result, err
	}
	defer p.stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type answer struct {
		line []byte
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := p.out.ReadBytes('\n')
		answers <- answer{line, err}
	}()
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done(): // stop gives it time to clear away what it made
		return result, fmt.Errorf("%s: not done after %v: %w", name, limit, ctx.Err())
	}
	if a.err != nil {
		return result, fmt.Errorf("%s: ended without a result: %w", name, a.err)
	}
	var r reply
	if err := json.Unmarshal(a.line, &r); err != nil {
		return result, fmt.Errorf("%s: %w: %q", name, err, a.line)
	}
	switch {
	case r.Skipped != "":
		return result, &skip{r.Skipped}
	case r.Error != "":
		return result, fmt.Errorf("%s: %s", name, r.Error)
	}
	return result, json.Unmarshal(r.Result, &result)
}

// cpu returns the CPU time this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// rss returns the memory this process has resident, and the most it ever had,
// in bytes; zero where there is no /proc.
func rss() (now, peak int64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	for line := range bytes.Lines(status) {
		name, value, _ := strings.Cut(string(line), ":")
		switch name {
		case "VmRSS":
			now = kilobytes(value)
		case "VmHWM":
			peak = kilobytes(value)
		}
	}
	return now, peak
}

func kilobytes(s string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(s), " kB"), 10, 64)
	return n << 10
}

// cpuOf returns the CPU time that all processes of a name have used, in ticks
// of 10 ms; zero where there is no /proc.
func cpuOf(name string) time.Duration {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	var total int64
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state ppid …: user and system time are fields 14 and 15.
		open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		if open < 0 || end < open || string(stat[open+1:end]) != name {
			continue
		}
		fields := bytes.Fields(stat[end+1:])
		if len(fields) < 13 {
			continue
		}
		for _, f := range fields[11:13] {
			n, _ := strconv.ParseInt(string(f), 10, 64)
			total += n
		}
	}
	return time.Duration(total) * 10 * time.Millisecond
}
