package webhook

// InvalidError reports an argument that breaks a rule: an event that cannot be
// published, a subscription that cannot be saved. Its text names the rule, and
// no value but the names of event types.
type InvalidError struct {
	Field string // such as "type", "data" or "events[2]"
	Rule  string
	cause error // what the host's own code returned, if that broke the rule
}

// Error returns "webhook: field: rule".
func (e *InvalidError) Error() string { return "webhook: " + e.Field + ": " + e.Rule }

// Unwrap returns the error of the host's own code, a MarshalJSON method or a
// [ScrubFunc], that is behind this one, or nil. It is left out of the text,
// because it may quote the data.
func (e *InvalidError) Unwrap() error { return e.cause }
