package main

var dispatcherMutants = []mutant{
	// Attempts.
	{
		name: "no limit to the headers",
		file: "internal/queue/flight.go",
		old:  "	f.deadline.Store(int64(f.started + q.cfg.Timeout))",
		new:  "	f.deadline.Store(1<<63 - 1)",
		pkg:  root, run: "TestNetworkErrorTimeLimitAndRedirectAreFailures",
	}, {
		name: "no limit to the body",
		file: "internal/queue/flight.go",
		old:  "	f.deadline.Store(int64(time.Since(f.q.epoch) + f.q.cfg.BodyTime))",
		new:  "	f.deadline.Store(1<<63 - 1)",
		pkg:  root, run: "TestATricklingBodyIsCutAfterOneSecond",
	}, {
		name: "no limit to the body, in RunOnce",
		file: "internal/queue/flight.go",
		old:  "		f.timer.Reset(f.q.cfg.BodyTime)",
		new:  "		f.timer.Stop()",
		pkg:  root, run: "TestATricklingBodyIsCutAfterOneSecond",
	}, {
		name: "the limit is another than 10 s",
		file: "config.go",
		old:  "		c.Timeout = 10 * time.Second",
		new:  "		c.Timeout = 9 * time.Second",
		pkg:  root, run: "TestNetworkErrorTimeLimitAndRedirectAreFailures",
	}, {
		name: "a redirect counts as success",
		file: "send.go",
		old:  "status >= 200 && status <= 299",
		new:  "status >= 200 && status <= 399",
		pkg:  root, run: "TestNetworkErrorTimeLimitAndRedirectAreFailures",
	}, {
		name: "one attempt beyond the budget",
		file: "send.go",
		old:  "	used := f.Lease.Attempts + 1",
		new:  "	used := f.Lease.Attempts",
		pkg:  root, run: "TestOwnScheduleAndSingleAttempt",
	}, {
		name: "what is final is repeated",
		file: "send.go",
		old:  "	case v.final || used >= f.Lease.Budget:",
		new:  "	case used >= f.Lease.Budget:",
		pkg:  root, run: "TestAnEndpointSavedUnderOtherRulesCanBePaused",
	}, {
		name: "an attempt that was cut counts",
		file: "send.go",
		old:  "	if answer.Status == 0 && f.Stopped() {",
		new:  "	if answer.Status < 0 && f.Stopped() {",
		pkg:  root, run: "TestStopLetsRunningAttemptsFinishAndCutsTheRest",
	}, {
		name: "a retry carries the time of the first attempt",
		file: "send.go",
		old:  "		Time:       at,",
		new:  "		Time:       l.CreatedAt,",
		pkg:  root, run: "TestEveryAttemptIsSignedAfresh",
	}, {
		name: "Retry-After brings an attempt forward",
		file: "retry.go",
		old:  "	delay = max(delay, retryAfter)",
		new:  "	if retryAfter > 0 {\n		delay = retryAfter\n	}",
		pkg:  root, run: "TestRetryAfterPostponesButNeverBringsForward",
	}, {
		name: "Retry-After has no end",
		file: "retry.go",
		old:  "	if date.After(now.Add(retryAfterMost)) {",
		new:  "	if date.After(now.Add(1000 * retryAfterMost)) {",
		pkg:  root, run: "TestRetryAfterPostponesButNeverBringsForward",
	}, {
		name: "jitter shortens",
		file: "retry.go",
		old:  "		delay += time.Duration(",
		new:  "		delay -= time.Duration(",
		pkg:  root, run: "TestJitterOnlyAdds",
	}, {
		name: "the log shows credentials in extra headers",
		file: "send.go",
		old:  "	if private(name) {\n		r.logged[name]",
		new:  "	if name == \"\" {\n		r.logged[name]",
		pkg:  root, run: "TestDeliversSignedRequestAndLogsIt",
	},
	{
		name: "answers are kept though they are to be dropped",
		file: "send.go",
		old:  "	if !s.config.DropResponses {",
		new:  "	if len(answer.Body) > 0 {",
		pkg:  root, run: "TestDropResponses",
	},

	// The scheduler.
	{
		name: "a lane starts more than its bound",
		file: "internal/queue/lane.go",
		old:  "l.head < len(l.waiting) && l.running < l.limit",
		new:  "l.head < len(l.waiting)",
		pkg:  root, run: "TestPauseStopsWhatWaitsInTheLane",
	}, {
		name: "a lane widens beyond its bound",
		file: "internal/queue/lane.go",
		old:  "			l.limit = min(l.bound, 2*l.limit)",
		new:  "			l.limit = min(2*l.bound, 2*l.limit)",
		pkg:  root, run: "TestMaxInFlightHolds",
	}, {
		name: "a request starts on a lease that is about to end",
		file: "internal/queue/flight.go",
		old:  "	return time.Until(l.Until) < q.cfg.Timeout+StartMargin",
		new:  "	return time.Until(l.Until) < 0",
		pkg:  root, run: "TestRunOnceStartsNothingOnALeaseThatMayRunOut",
	}, {
		name: "a fence lets pass what is being dialled",
		file: "internal/queue/flight.go",
		old:  "	g.fenced = true\n	if !g.passed {\n",
		new:  "	if g.fenced {\n",
		pkg:  root, run: "TestNothingOldGoesOutAfterTheCallReturned",
	}, {
		name: "pausing does not fence",
		file: "endpoint.go",
		old:  "		d.queue.Fence(id, e.Revision)\n",
		new:  "",
		pkg:  root, run: "TestNothingOldGoesOutAfterTheCallReturned/pause",
	}, {
		name: "deleting does not fence",
		file: "endpoint.go",
		old:  "	d.queue.Fence(id, deletedRevision)\n",
		new:  "",
		pkg:  root, run: "TestNothingOldGoesOutAfterTheCallReturned/delete",
	}, {
		name: "rotating does not fence",
		file: "rotate.go",
		old:  "		d.queue.Fence(id, e.Revision)\n",
		new:  "",
		pkg:  root, run: "TestNothingOldGoesOutAfterTheCallReturned/rotate",
	}, {
		name: "requests start though the store cannot be asked",
		file: "internal/queue/flight.go",
		old:  "	return time.Since(q.probedAt) > q.cfg.Poll+blindAfter",
		new:  "	return false",
		pkg:  root, run: "TestNothingStartsWhileTheStoreCannotBeAsked",
	}, {
		name: "outcomes are lost in an outage of the store",
		file: "internal/queue/settle.go",
		old:  "	q.todo.outcomes = append(t.outcomes, q.todo.outcomes...)\n	q.todo.finished = append(t.finished, q.todo.finished...)\n",
		new:  "",
		pkg:  root, run: "TestOutcomesSurviveAnOutageOfTheStore",
	},

	// Publishing.
	{
		name: "secrets are found in one letter case only",
		file: "internal/scrub/names.go",
		old:  "func fold(r rune) rune {\n",
		new:  "func fold(r rune) rune {\n	if r >= 0 {\n		return r\n	}\n",
		pkg:  scrub, run: "TestObjectRemovesMembers",
	}, {
		name: "secrets are found in the outermost object only",
		file: "internal/scrub/scrub.go",
		old:  "		if s.names.has(s.data[i+1:end-1], plain) {",
		new:  "		if s.depth == 1 && s.names.has(s.data[i+1:end-1], plain) {",
		pkg:  scrub, run: "TestObjectRemovesMembers",
	}, {
		name: "an escaped name is not unescaped",
		file: "internal/scrub/names.go",
		old:  "	if spelled[0] != '\\\\' {",
		new:  "	if spelled[0] != 0 {",
		pkg:  scrub, run: "TestObjectRemovesMembers",
	}, {
		name: "what a scrub function returns is not scrubbed again",
		file: "catalog.go",
		old:  "bytes.Clone(data)); err == nil {\n			data, err = scrubObject(data, t.names)",
		new:  "bytes.Clone(data)); err == nil {\n			data, err = scrubObject(data, scrub.Names{})",
		pkg:  root, run: "TestScrubFunc",
	}, {
		name: "the body is one byte too large",
		file: "publish.go",
		old:  "	if size > d.config.MaxBody {",
		new:  "	if size > d.config.MaxBody+1 {",
		pkg:  root, run: "TestBodyAtTheLimitPassesAndOneByteMoreDoesNot",
	}, {
		name: "the digest leaves out the data",
		file: "event.go",
		old:  "	h.Write(data)\n",
		new:  "",
		pkg:  root, run: "TestDigest",
	}, {
		name: "an endpoint that moved keeps the old host's credentials",
		file: "endpoint.go",
		old:  "		moved := origin(before.URL) != origin(e.URL)",
		new:  "		moved := origin(before.URL) == \"\" && len(e.Headers) == 0",
		pkg:  root, run: "TestUpdateEndpoint",
	},

	// Secrets.
	{
		name: "the overlap includes its end",
		file: "send.go",
		old:  "at.Before(r.previousUntil)",
		new:  "!at.After(r.previousUntil)",
		pkg:  root, run: "TestAnOverlapEndsOnTimeWithoutHousekeeping",
	}, {
		name: "a leaked secret has an overlap all the same",
		file: "rotate.go",
		old:  "		if !o.NoOverlap {",
		new:  "		if o.Seen == nil || !o.NoOverlap {",
		pkg:  root, run: "TestLeakedSecretDiesAtOnce",
	}, {
		name: "a ciphertext is not bound to its endpoint",
		file: "seal.go",
		old:  "	return binary.BigEndian.AppendUint64(b, uint64(endpointID))",
		new:  "	return b",
		pkg:  root, run: "FuzzUnseal",
	}, {
		name: "a ciphertext is not bound to its workspace",
		file: "seal.go",
		old:  "	b = binary.BigEndian.AppendUint64(b, uint64(workspaceID))\n",
		new:  "",
		pkg:  root, run: "FuzzUnseal",
	}, {
		name: "a ciphertext is not bound to what it is",
		file: "seal.go",
		old:  "	b := []byte(\"elido webhook 1\\x00\" + what + \"\\x00\")",
		new:  "	b := []byte(\"elido webhook 1\\x00\\x00\")",
		pkg:  root, run: "FuzzUnseal",
	}, {
		name: "secrets are stored in the clear though there are keys",
		file: "seal.go",
		old:  "	if k.aeads == nil || s.IsZero() {",
		new:  "	if k.current != \"\" || s.IsZero() {",
		pkg:  root, run: "TestSecretsAreEncryptedAndBoundToTheirEndpoint",
	}, {
		name: "a secret is printed",
		file: "store/secret.go",
		old:  "func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }",
		new:  "func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.Reveal()) }",
		pkg:  root, run: "TestNoStructOfOursPrintsItsSecrets",
	}, {
		name: "a panicking scheme's value, with the secret in it, is an error",
		file: "signer.go",
		old:  "		if recover() != nil { // the value may hold the secret\n			err = errors.New(\"the signature scheme panicked\")",
		new:  "		if p := recover(); p != nil {\n			text, _ := p.(string)\n			err = errors.New(\"the signature scheme panicked: \" + text)",
		pkg:  root, run: "TestASchemeThatPanicsOverASecretDoesNotShowIt",
	}, {
		name: "a panicking scheme's value, with the secret in it, is logged",
		file: "internal/queue/flight.go",
		old:  "				\"panic\", fmt.Sprintf(\"%T\", p),",
		new:  "				\"panic\", fmt.Sprintf(\"%v\", p),",
		pkg:  root, run: "TestAPanickingSchemeDoesNotLogTheSecret",
	},
}
