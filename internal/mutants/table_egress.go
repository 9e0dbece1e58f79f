package main

var egressMutants = []mutant{
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
		old:  "	if x.answer, err = c.readHead(); err != nil { //nolint:bodyclose // what was read to its end or goes with the connection needs no closing\n		return x, false, err",
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
		old:  "	\"host\":                true,\n",
		new:  "",
		pkg:  egress, run: "TestCheckHeaders",
	}, {
		name: "an endpoint may set Idempotency-Key",
		file: "internal/egress/header.go",
		old:  "	\"idempotency-key\":     true,\n",
		new:  "",
		pkg:  egress, run: "TestCheckHeaders",
	}, {
		name: "a reserved header passes with underscores",
		file: "internal/egress/header.go",
		old:  "strings.ReplaceAll(strings.ToLower(name), \"_\", \"-\")",
		new:  "strings.ToLower(name)",
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
}
