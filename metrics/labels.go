package metrics

import (
	"slices"

	"github.com/elido-app/webhook"
)

// The values that labels have. What is none of them, in a later version of the
// library, say, is other: label values are a closed set.
var (
	kinds    = []string{"event", "siem", "discord", "telegram", "sentry"}
	outcomes = []string{"delivered", "retry", "failed"}
	changes  = []string{string(webhook.EndpointDegraded), string(webhook.EndpointPaused), string(webhook.EndpointRecovered)}
)

const other = "other"

func oneOf(list []string, value string) string {
	if slices.Contains(list, value) {
		return value
	}
	return other
}

func kindLabel(k webhook.Kind) string { return oneOf(kinds, string(k)) }

func changeLabel(c webhook.EndpointChange) string { return oneOf(changes, string(c)) }

func outcomeLabel(s webhook.Status) string {
	switch s {
	case webhook.StatusDelivered:
		return "delivered"
	case webhook.StatusPending:
		return "retry"
	case webhook.StatusFailed:
		return "failed"
	}
	return other
}

func answerLabel(status int) string {
	switch status / 100 {
	case 0:
		if status == 0 {
			return "none"
		}
	case 2:
		return "2xx"
	case 3:
		return "3xx"
	case 4:
		return "4xx"
	case 5:
		return "5xx"
	}
	return other
}
