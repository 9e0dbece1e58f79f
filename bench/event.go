package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/elido-app/webhook"
)

const (
	eventType = "link.created"
	workspace = 11 // and those after it: all of two digits, so that bodies are equally long
	bodySize  = 600
	// stampDigits is how many digits Unix nanoseconds have, until the year 2286.
	stampDigits = 19
)

// eventData is the data of an event, of a length that makes the body 600 bytes
// long. It begins with when it is published.
var eventData = func() []byte {
	data := []byte(`{"t":"0000000000000000000","id":91834,"slug":"spring-sale","url":"https://go.example.com/spring-sale","title":"`)
	empty, err := envelope(append(bytes.Clone(data), `"}`...))
	if err != nil {
		panic(err)
	}
	const words = "the quick brown fox jumps over the lazy dog and "
	padding := bytes.Repeat([]byte(words), bodySize/len(words)+1)
	return append(append(data, padding[:bodySize-len(empty)]...), `"}`...)
}()

// newData returns the data of an event that is published now.
func newData() json.RawMessage {
	data := bytes.Clone(eventData)
	copy(data[len(`{"t":"`):], strconv.FormatInt(time.Now().UnixNano(), 10))
	return data
}

func newBatch(n int) []json.RawMessage {
	batch := make([]json.RawMessage, n)
	for i := range batch {
		batch[i] = newData()
	}
	return batch
}

// envelope makes the body of data: the same for everybody.
func envelope(data json.RawMessage) ([]byte, error) {
	return webhook.EnvelopeV1(webhook.EnvelopeFields{
		Type: eventType, WorkspaceID: workspace, Data: data, Time: time.Now(),
	})
}
