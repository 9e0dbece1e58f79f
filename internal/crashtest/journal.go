package crashtest

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"
)

// An entry is one line of a process's journal: something it is about to do, or
// has done. Each is written to the file before the process goes on, so that it
// outlives the process.
type entry struct {
	Did      string
	Delivery int64   `json:",omitempty"`
	Attempt  int     `json:",omitempty"`
	Status   int     `json:",omitempty"` // HTTP
	Marker   string  `json:",omitempty"` // of a publish
	Event    string  `json:",omitempty"`
	IDs      []int64 `json:",omitempty"`
	Endpoint int64   `json:",omitempty"`
	Count    int     `json:",omitempty"`
	Error    string  `json:",omitempty"`
}

// What a process did. What ends in -ing may or may not have happened if nothing
// follows it.
const (
	didSend      = "send"      // signed a request, which goes out unless the process dies or the endpoint changes
	didRecord    = "record"    // stored an outcome
	didDrop      = "drop"      // was told that somebody else had taken the delivery over
	didConfirm   = "confirm"   // had a receipt
	didRetrying  = "retrying"  // is about to retry by hand
	didRetry     = "retry"     // did
	didRefuse    = "refuse"    // was refused, as it is pending
	didRotating  = "rotating"  // is about to replace a secret
	didRotate    = "rotate"    // did
	didConflict  = "conflict"  // was not the first
	didUndo      = "undo"      // rolled a transaction back
	didCount     = "count"     // came to its point, so often
	didEncounter = "encounter" // met an error that it should not
)

// A journal is a file of entries. It is safe for concurrent use.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the test names it
	if err != nil {
		return nil, err
	}
	return &journal{file: f}, nil
}

func (j *journal) write(e any) {
	line, err := json.Marshal(e)
	if err == nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

// readLines reads a file of JSON lines. A last one that its writer did not live
// to finish is left out.
func readLines[T any](path string) ([]T, error) {
	f, err := os.Open(path) //nolint:gosec // the test names it
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var list []T
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return list, nil
		}
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
}
