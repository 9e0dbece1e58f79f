package main

// The packages whose tests notice.
const (
	root     = "."
	egress   = "./internal/egress"
	scrub    = "./internal/scrub"
	sig      = "./internal/sig"
	verify   = "./verify"
	contract = "./store"
	memory   = "./store_memory"
	sqlite   = "./store_sqlite"
)

var table = []mutant{
	// Where requests may go.
	{
		name: "a mapped address is not unmapped",
		file: "internal/egress/address.go",
		old:  "	addr = addr.Unmap()\n	if addr.Is4() {",
		new:  "	if addr.Is4() {",
		pkg:  egress, run: "TestPublic",
	}, {
		name: "what is allowed is not unmapped",
		file: "internal/egress/address.go",
		old:  "	addr = addr.Unmap()\n	if o.AllowLoopback",
		new:  "	if o.AllowLoopback",
		pkg:  egress, run: "TestAllowed",
	}, {
		name: "a zone is not refused",
		file: "internal/egress/address.go",
		old:  "	if !addr.IsValid() || addr.Zone() != \"\" {\n		return false\n	}\n	addr = addr.Unmap()\n	if addr.Is4() {",
		new:  "	addr = addr.Unmap()\n	if addr.Is4() {",
		pkg:  egress, run: "TestPublic",
	}, {
		name: "the cloud's platform address counts as public",
		file: "internal/egress/address.go",
		old:  "	\"168.63.129.16/32\", //",
		new:  "	//",
		pkg:  egress, run: "TestPublic",
	}, {
		name: "only the first of a name's addresses is vetted",
		file: "internal/egress/dial.go",
		old:  "	for _, addr := range addrs {\n		if !d.options.allowed(addr) {",
		new:  "	for _, addr := range addrs[:min(1, len(addrs))] {\n		if !d.options.allowed(addr) {",
		pkg:  egress, run: "TestNamesThatResolveInside",
	}, {
		name: "the dial hook lets pass what does not parse",
		file: "internal/egress/dial.go",
		old:  "if err != nil || !d.options.allowed(target.Addr()) {",
		new:  "if err == nil && !d.options.allowed(target.Addr()) {",
		pkg:  egress, run: "TestControl",
	}, {
		name: "a host that ends in a number is a name",
		file: "internal/egress/url.go",
		old:  "	if endsInNumber(last) {",
		new:  "	if last == \"\" && endsInNumber(last) {",
		pkg:  egress, run: "TestBrokenURLs",
	}, {
		name: "a user name in the URL passes",
		file: "internal/egress/url.go",
		old:  "	if strings.Contains(authority, \"@\") {",
		new:  "	if false {",
		pkg:  egress, run: "TestBrokenURLs",
	},

	// How they are sent.
	{
		name: "the proxy comes from the environment",
		file: "internal/egress/client.go",
		old:  "	if c.options.Proxy == nil {\n		return c.wire.do(ctx, r, answered)\n	}\n	proxy, err := c.options.Proxy(c.request(ctx, r))",
		new:  "	proxy, err := http.ProxyFromEnvironment(c.request(ctx, r))",
		pkg:  egress, run: "TestProxyFromEnvironmentIsIgnored",
	}, {
		name: "answers are decompressed",
		file: "internal/egress/egress.go",
		old:  "DisableCompression:     true,",
		new:  "DisableCompression:     false,",
		pkg:  egress, run: "TestProxiedAnswersAreTakenAsTheyAre",
	}, {
		name: "compressed answers are asked for",
		file: "internal/egress/request.go",
		old:  "	b = append(b, \"Content-Length: \"...)",
		new:  "	b = append(b, \"Accept-Encoding: gzip\\r\\nContent-Length: \"...)",
		pkg:  egress, run: "TestOnTheWire",
	}, {
		name: "a connection that ended is used again",
		file: "internal/egress/pool.go",
		old:  "time.Since(c.since) < idleLimit && c.quiet()",
		new:  "time.Since(c.since) < idleLimit",
		pkg:  egress, run: "TestAClosedConnectionIsNotUsedAgain",
	}, {
		name: "a request of which some went out is sent again",
		file: "internal/egress/wire.go",
		old:  "	if x.answer, err = c.readHead(); err != nil {\n		return x, false, err",
		new:  "	if x.answer, err = c.readHead(); err != nil {\n		if c.used {\n			err = errUnsent\n		}\n		return x, false, err",
		pkg:  egress, run: "TestOneRequestPerCall",
	}, {
		name: "http.Client.Do in place of RoundTrip",
		file: "internal/egress/client.go",
		old:  "c.transport.RoundTrip(req)",
		new:  "(&http.Client{Transport: c.transport}).Do(req)",
		pkg:  egress, run: "TestProxiedAnswersAreTakenAsTheyAre",
	}, {
		name: "a POST may be repeated by net/http",
		file: "internal/egress/client.go",
		old:  "		req.ContentLength = int64(len(r.Body))",
		new:  "		req.ContentLength = int64(len(r.Body))\n		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.Body)), nil }",
		pkg:  egress, run: "TestOneRequestPerCall|TestReplacedTransport",
	}, {
		name: "TLS 1.0 is good enough",
		file: "internal/egress/dial.go",
		old:  "tls.VersionTLS12",
		new:  "tls.VersionTLS10",
		pkg:  egress, run: "TestTLS",
	}, {
		name: "more than 16 KiB of an answer are kept",
		file: "internal/egress/egress.go",
		old:  "keepLimit   = 16 << 10",
		new:  "keepLimit   = 32 << 10",
		pkg:  egress, run: "TestAnswerLimits",
	}, {
		name: "more than 64 KiB of an answer are read",
		file: "internal/egress/egress.go",
		old:  "readLimit   = 64 << 10",
		new:  "readLimit   = 1 << 20",
		pkg:  egress, run: "TestAnswerLimits",
	}, {
		name: "an endpoint may set the Host header",
		file: "internal/egress/header.go",
		old:  "	\"host\":              true,\n",
		new:  "",
		pkg:  egress, run: "TestCheckHeaders",
	}, {
		name: "an endpoint may set Idempotency-Key",
		file: "internal/egress/header.go",
		old:  "	\"idempotency-key\":   true,\n",
		new:  "",
		pkg:  egress, run: "TestCheckHeaders",
	}, {
		name: "a line break in a header's value passes",
		file: "internal/egress/header.go",
		old:  "		if value[i] < ' ' || value[i] > '~' {",
		new:  "		if value[i] > '~' {",
		pkg:  egress, run: "TestCheckHeaders",
	}, {
		name: "a transport's error is shown as it is",
		file: "internal/egress/client.go",
		old:  "		return Answer{Err: f, Latency",
		new:  "		return Answer{Err: err, Latency",
		pkg:  egress, run: "TestReplacedTransport",
	}, {
		name: "a second answer on the connection is believed",
		file: "internal/egress/wire.go",
		old:  "&& c.read.Buffered() == 0 &&",
		new:  "&&",
		pkg:  egress, run: "TestTrailingJunk",
	},

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
		pkg:  root, run: "TestOldSecretSignsUntilExactlySevenDaysAfterRotation",
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
		pkg:  root, run: "TestNothingPrintsASecret",
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

	// Signatures.
	{
		name: "the secret's prefix is cut off",
		file: "internal/sig/secret.go",
		old:  "	return newKey([]byte(secret)), nil",
		new:  "	return newKey([]byte(strings.TrimPrefix(secret, SecretPrefix))), nil",
		pkg:  sig, run: "TestVectors",
	}, {
		name: "== on a MAC, in MAC.Equal",
		file: "internal/sig/sig.go",
		old:  "	return subtle.ConstantTimeCompare(m[:], o[:]) == 1",
		new:  "	_ = subtle.ConstantTimeCompare\n	return *m == *o",
		pkg:  root, run: "TestSecretsAreComparedInConstantTime",
	}, {
		name: "== on a MAC, in verify",
		file: "verify/verifier.go",
		old:  "				if c.macs[j].Equal(&want) {",
		new:  "				if c.macs[j] == want {",
		pkg:  root, run: "TestSecretsAreComparedInConstantTime",
	}, {
		name: "== on a secret",
		file: "store/secret.go",
		old:  "	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(o.Reveal())) == 1",
		new:  "	_ = subtle.ConstantTimeCompare\n	return s.Reveal() == o.Reveal()",
		pkg:  root, run: "TestSecretsAreComparedInConstantTime",
	}, {
		name: "a short secret is accepted",
		file: "internal/sig/secret.go",
		old:  "	case len(secret) < MinSecretLen || len(secret) > MaxSecretLen:",
		new:  "	case len(secret) > MaxSecretLen:",
		pkg:  sig, run: "TestCheckSecret",
	}, {
		name: "a timestamp with a leading zero is accepted",
		file: "internal/sig/sig.go",
		old:  "len(s) > MaxTimestampLen || s[0] == '0' {",
		new:  "len(s) > MaxTimestampLen {",
		pkg:  verify, run: "TestTimestampGrammar",
	}, {
		name: "the first of two headers is taken",
		file: "verify/header.go",
		old:  "	case len(lines) > 1:",
		new:  "	case len(lines) < 0:",
		pkg:  verify, run: "TestRefused",
	}, {
		name: "the future is not refused",
		file: "verify/header.go",
		old:  "	case -age > at.tolerance:",
		new:  "	case -age > at.tolerance && age > 0:",
		pkg:  verify, run: "TestTolerance",
	}, {
		name: "the past is not refused",
		file: "verify/header.go",
		old:  "	case age > at.tolerance:",
		new:  "	case age > at.tolerance && age < 0:",
		pkg:  verify, run: "TestTolerance",
	}, {
		name: "any number of signatures in one header",
		file: "verify/header.go",
		old:  "			return tooMany(sig.HeaderTimed)",
		new:  "			break",
		pkg:  verify, run: "TestRefused|TestRefusesInTime",
	}, {
		name: "a signed id may be shadowed",
		file: "verify/verifier.go",
		old:  "		if present && delivery != signedID {",
		new:  "		if present && delivery == \"\" {",
		pkg:  verify, run: "TestRefused",
	}, {
		name: "the zero Verifier verifies",
		file: "verify/verifier.go",
		old:  "	if len(v.keys) == 0 {\n		return ErrNoSecret\n	}\n",
		new:  "",
		pkg:  verify, run: "TestZeroVerifierRefusesEverything",
	}, {
		name: "a failed delivery is remembered as handled",
		file: "verify/once.go",
		old:  "		if err := next(ctx, ev); err != nil {\n			return err\n		}\n		done = true",
		new:  "		done = true\n		if err := next(ctx, ev); err != nil {\n			return err\n		}",
		pkg:  verify, run: "TestOnce",
	}, {
		name: "a replay under another id is let through",
		file: "verify/once.go",
		old:  "		if holder != ev.DeliveryID {",
		new:  "		if holder == \"\" {",
		pkg:  verify, run: "TestOnceReplays",
	}, {
		name: "a signature is forgotten before it is stale",
		file: "verify/event.go",
		old:  "	ev.remember = 2*v.tolerance() + time.Minute",
		new:  "	ev.remember = v.tolerance()",
		pkg:  verify, run: "TestOnceRemembersSignaturesLongEnough",
	},

	// The memory store.
	{
		name: "Record does not look at the token (memory)",
		file: "store_memory/claim.go",
		old:  "	if d == nil || d.token != token || d.token == 0 ||",
		new:  "	if d == nil || token == 0 || d.token == 0 ||",
		pkg:  memory, run: "TestStore/record/stale",
	}, {
		name: "Renew does not look at the token (memory)",
		file: "store_memory/claim.go",
		old:  "		d := s.held(ref.DeliveryID, ref.Token)\n		// One",
		new:  "		d := s.deliveries[ref.DeliveryID]\n		// One",
		pkg:  memory, run: "TestStore/renew/lost",
	}, {
		name: "a claim counts as an attempt (memory)",
		file: "store_memory/queue.go",
		old:  "	d.token = token\n	e.renew(d, until)",
		new:  "	d.token = token\n	d.attempts++\n	e.renew(d, until)",
		pkg:  memory, run: "TestStore/release/back",
	}, {
		name: "the room at an endpoint is ignored (memory)",
		file: "store_memory/claim.go",
		old:  "			room--\n",
		new:  "",
		pkg:  memory, run: "TestStore/claim/room",
	}, {
		name: "ordering keys are not kept (memory)",
		file: "store_memory/queue.go",
		old:  "	case head != nil && (head.id < d.id || head.place == leased):\n		q.block(d)\n		return nil\n",
		new:  "	case head != nil && head.id < d.id:\n		return d\n",
		pkg:  memory, run: "TestStore/order/one_after_the_other",
	}, {
		name: "an idempotency key takes any content (memory)",
		file: "store_memory/publish.go",
		old:  "				if used.digest != ev.Digest {",
		new:  "				if used == nil {",
		pkg:  memory, run: "TestStore/idempotency/conflict",
	}, {
		name: "a pending delivery is retried (memory)",
		file: "store_memory/log.go",
		old:  "	if d.status == store.StatusPending {\n		return store.Delivery{}, store.ErrPending",
		new:  "	if d.status == store.StatusPending && d.place == leased {\n		return store.Delivery{}, store.ErrPending",
		pkg:  memory, run: "TestStore/retry/pending",
	}, {
		name: "another workspace's endpoint is found (memory)",
		file: "store_memory/endpoint.go",
		old:  "	if e == nil || e.deleted || e.record.WorkspaceID != workspaceID {",
		new:  "	if e == nil || e.deleted || workspaceID == 0 {",
		pkg:  memory, run: "TestStore/endpoint/not_found",
	}, {
		name: "a second rotation is not noticed (memory)",
		file: "store_memory/endpoint.go",
		old:  "	if e.record.Rotations != p.Seen {",
		new:  "	if e.record.Rotations < p.Seen {",
		pkg:  memory, run: "TestStore/rotate/seen",
	}, {
		name: "a delete leaves its rows (memory)",
		file: "store_memory/endpoint.go",
		old:  "		s.gone = append(s.gone, e)",
		new:  "		_ = s.gone",
		pkg:  memory, run: "TestStore/maintain/deleted_endpoints",
	}, {
		name: "a delete leaves its secrets (memory)",
		file: "store_memory/endpoint.go",
		old:  "	e.secrets = store.Secrets{}\n",
		new:  "",
		pkg:  memory, run: "TestDeletedEndpointsKeepNoSecret",
	}, {
		name: "a pending delivery is pruned (memory)",
		file: "store_memory/maintain.go",
		old:  "		for e.finished.len() > keep && !e.deleted && take(left) {\n			s.drop(e.finished.first())",
		new:  "		for e.log.len() > keep && !e.deleted && take(left) {\n			s.drop(e.log.first())",
		pkg:  memory, run: "TestStore/maintain/pending|TestStore/maintain/count",
	}, {
		name: "parallel failures each count (health)",
		file: "store/health.go",
		old:  "		if h.Failures > 0 && !startedAt.After(h.FailedAt) {\n			return h, change\n		}\n",
		new:  "",
		pkg:  memory, run: "TestStore/health/counting",
	}, {
		name: "a delivery that was interrupted often is retaken at once",
		file: "store/params.go",
		old:  "	if count < 5 {",
		new:  "	if count < 50 {",
		pkg:  contract, run: "TestRetakeDelay",
	},

	// SQLite.
	{
		name: "transactions begin deferred (SQLite)",
		file: "store_sqlite/writer.go",
		old:  "&query{sql: \"BEGIN IMMEDIATE\"}",
		new:  "&query{sql: \"BEGIN\"}",
		pkg:  sqlite, run: "TestProcessesAndStoresShareAFile",
	}, {
		name: "a commit is not synced (SQLite)",
		file: "store_sqlite/open.go",
		old:  "		{\"synchronous\", \"FULL\", 2},\n		{\"foreign_keys\", \"ON\", 1},\n		{\"secure_delete\"",
		new:  "		{\"synchronous\", \"NORMAL\", 1},\n		{\"foreign_keys\", \"ON\", 1},\n		{\"secure_delete\"",
		pkg:  sqlite, run: "TestSettingsAreTheDocumentedOnes",
	}, {
		name: "everybody may read the file (SQLite)",
		file: "store_sqlite/open.go",
		old:  "os.O_RDWR|os.O_CREATE, 0o600)",
		new:  "os.O_RDWR|os.O_CREATE, 0o644)",
		pkg:  sqlite, run: "TestOpenCreatesAFileOfItsOwnersAlone",
	}, {
		name: "Record does not look at the token (SQLite)",
		file: "store_sqlite/record.go",
		old:  "!held || l.token != o.Token ||",
		new:  "!held ||",
		pkg:  sqlite, run: "TestContract/record/stale",
	}, {
		name: "Renew does not look at the token (SQLite)",
		file: "store_sqlite/lease.go",
		old:  "	if err != nil || l == nil || l.state == stateBlocked {",
		new:  "	if err == nil && l == nil {\n		return true, tx.run(updateRenewed, nil, until, ref.DeliveryID)\n	}\n	if err != nil || l.state == stateBlocked {",
		pkg:  sqlite, run: "TestContract/renew/lost",
	}, {
		name: "a claim counts as an attempt (SQLite)",
		file: "store_sqlite/claim.go",
		old:  "SET state = 1, token = ?, lease_until = ?\n		WHERE id IN",
		new:  "SET state = 1, token = ?, lease_until = ?, attempts = attempts + 1\n		WHERE id IN",
		pkg:  sqlite, run: "TestContract/release/back",
	}, {
		name: "the room at an endpoint is ignored (SQLite)",
		file: "store_sqlite/claim.go",
		old:  "	room := min(a.left(e), a.room.Limit-a.given)",
		new:  "	room := a.room.Limit - a.given",
		pkg:  sqlite, run: "TestContract/claim/room",
	}, {
		name: "ordering keys are not kept (SQLite)",
		file: "store_sqlite/publish.go",
		old:  "		if held {\n			state = stateBlocked",
		new:  "		if held && ev.ID == \"\" {\n			state = stateBlocked",
		pkg:  sqlite, run: "TestContract/order/one_after_the_other",
	}, {
		name: "an idempotency key takes any content (SQLite)",
		file: "store_sqlite/publish.go",
		old:  "		if found && !same {",
		new:  "		if !found && same {",
		pkg:  sqlite, run: "TestContract/idempotency/conflict",
	}, {
		name: "a pending delivery is retried (SQLite)",
		file: "store_sqlite/retry.go",
		old:  "		if d.Status == store.StatusPending {",
		new:  "		if d.Status == \"\" {",
		pkg:  sqlite, run: "TestContract/retry/pending",
	}, {
		name: "another workspace's endpoint is found (SQLite)",
		file: "store_sqlite/endpoint.go",
		old:  "		WHERE id = ? AND workspace_id = ? AND deleted_at IS NULL`}\n	selectEndpoints",
		new:  "		WHERE id = ? AND workspace_id <> -? AND deleted_at IS NULL`}\n	selectEndpoints",
		pkg:  sqlite, run: "TestContract/endpoint/not_found",
	}, {
		name: "a second rotation is not noticed (SQLite)",
		file: "store_sqlite/endpoint.go",
		old:  "		if old.Rotations != p.Seen {",
		new:  "		if old.Rotations < p.Seen {",
		pkg:  sqlite, run: "TestContract/rotate/seen",
	}, {
		name: "a delete leaves its secrets (SQLite)",
		file: "store_sqlite/endpoint.go",
		old:  "		current_key = '', current_secret = NULL, previous_key = '', previous_secret = NULL, previous_until = NULL,\n		credentials_key",
		new:  "		credentials_key",
		pkg:  sqlite, run: "TestErasedSecretsAreNotInTheFile",
	}, {
		name: "an ended overlap leaves its secret (SQLite)",
		file: "store_sqlite/maintain.go",
		old:  "SET previous_key = '', previous_secret = NULL, previous_until = NULL,\n		revision",
		new:  "SET previous_key = '', previous_until = NULL,\n		revision",
		pkg:  sqlite, run: "TestErasedSecretsAreNotInTheFile",
	}, {
		name: "erased secrets linger in a page (SQLite)",
		file: "store_sqlite/open.go",
		old:  "{\"secure_delete\", \"FAST\", 2}",
		new:  "{\"secure_delete\", \"OFF\", 0}",
		pkg:  sqlite, run: "TestSettingsAreTheDocumentedOnes",
	}, {
		name: "a delete leaves its attempts (SQLite)",
		file: "store_sqlite/maintain.go",
		old:  "	if err := tx.run(deleteAttempts, nil, id); err != nil {\n		return false, err\n	}\n",
		new:  "",
		pkg:  sqlite, run: "TestNothingIsLeft",
	}, {
		name: "a delete leaves its deliveries (SQLite)",
		file: "store_sqlite/maintain.go",
		old:  "			return m.remove(ctx, rows, stateReady)",
		new:  "			return m.remove(ctx, rows, stateDelivered)",
		pkg:  sqlite, run: "TestNothingIsLeft",
	}, {
		name: "what is recorded for a deleted endpoint counts (SQLite)",
		file: "store_sqlite/endpoint.go",
		old:  "		if err := tx.run(updateRevoked, nil, int64(math.MinInt64), id); err != nil {\n			return err\n		}\n",
		new:  "		_ = int64(math.MinInt64)\n",
		pkg:  sqlite, run: "TestContract/delete/stale",
	}, {
		name: "one member's fault fails the batch (SQLite)",
		file: "store_sqlite/writer.go",
		old:  "	if len(batch) == 1 || errors.Is(err, store.ErrOutcomeUnknown) {",
		new:  "	if len(batch) >= 1 || errors.Is(err, store.ErrOutcomeUnknown) {",
		pkg:  sqlite, run: "TestGroupCommitSurvivesAMembersFault",
	}, {
		name: "an outcome that is not known looks like a plain end (SQLite)",
		file: "store_sqlite/writer.go",
		old:  "		return fmt.Errorf(\"%w: %w\", ctx.Err(), store.ErrOutcomeUnknown)",
		new:  "		return fmt.Errorf(\"%w\", ctx.Err())",
		pkg:  sqlite, run: "TestACallThatEndsDuringItsCommitDoesNotKnow",
	}, {
		name: "statements go on after a fault (SQLite)",
		file: "store_sqlite/transaction.go",
		old:  "	if tx.fault != nil {\n		return tx.fault\n	}\n	if !strings",
		new:  "	if !strings",
		pkg:  sqlite, run: "TestNothingRunsAfterAFault",
	}, {
		name: "a file that was replaced is written on (SQLite)",
		file: "store_sqlite/open.go",
		old:  "	if err == nil && !os.SameFile(info, f.info) {",
		new:  "	if err == nil && info == nil {",
		pkg:  sqlite, run: "TestAFileDeletedUnderneathIsNoticed",
	}, {
		name: "a host's transaction keeps half a publish (SQLite)",
		file: "store_sqlite/host.go",
		old:  "		if undone := run.run(undoing, nil); undone == nil {",
		new:  "		if undone := run.run(releasing, nil); undone == nil {",
		pkg:  sqlite, run: "TestTxKeepsTheRestOfTheTransaction",
	},
}
