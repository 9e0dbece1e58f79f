package main

const channel = "./internal/channel"

// profileMutants break what the extended profile promises.
var profileMutants = []mutant{
	{
		name: "the third delay of the extended profile is another",
		file: "profile.go",
		old:  "time.Second, 30 * time.Second, 5 * time.Minute",
		new:  "time.Second, 30 * time.Second, 6 * time.Minute",
		pkg:  root, run: "TestExtendedProfileAttemptsSevenTimes",
	}, {
		name: "the attempt header begins anew with each budget",
		file: "send.go",
		old:  "		Attempt:    l.TotalAttempts + 1,",
		new:  "		Attempt:    l.Attempts + 1,",
		pkg:  root, run: "TestReplayHasAFreshBudgetAndCountsOn",
	}, {
		name: "the extended envelope has whole seconds",
		file: "envelope.go",
		old:  `f.Time.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")`,
		new:  `f.Time.UTC().AppendFormat(b, "2006-01-02T15:04:05Z")`,
		pkg:  root, run: "TestExtendedEnvelopeIsTheSameEverywhere",
	}, {
		name: "a link's id is no default ordering key",
		file: "profile.go",
		old:  "	if key := scalar(v.LinkID); key != \"\" {",
		new:  "	if key := scalar(v.LinkID); key == \"\" {",
		pkg:  root, run: "TestLinksGoInOrder",
	}, {
		name: "the extended profile has no ordering key",
		file: "profile.go",
		old:  "		OrderingKey: LinkOrderingKey,\n",
		new:  "",
		pkg:  root, run: "TestLinksGoInOrder",
	}, {
		name: "degraded after 4 failures",
		file: "profile.go",
		old:  "DegradeAfter: 3,",
		new:  "DegradeAfter: 4,",
		pkg:  root, run: "TestDegradedForADay",
	}, {
		name: "degraded for less than a day",
		file: "profile.go",
		old:  "DegradeFor: 24 * time.Hour,",
		new:  "DegradeFor: 24*time.Hour - 2*time.Millisecond,",
		pkg:  root, run: "TestDegradedForADay",
	}, {
		name: "the end of the day is degraded",
		file: "store/health.go",
		old:  "at.Before(h.DegradedUntil)",
		new:  "!at.After(h.DegradedUntil)",
		pkg:  root, run: "TestDegradedForADay",
	}, {
		name: "a degraded delivery has 4 attempts",
		file: "profile.go",
		old:  "DegradedAttempts: 3,",
		new:  "DegradedAttempts: 4,",
		pkg:  root, run: "TestDegradedForADay",
	}, {
		name: "paused after 51 failures",
		file: "profile.go",
		old:  "PauseAfter: 50}",
		new:  "PauseAfter: 51}",
		pkg:  root, run: "TestPausedAtTheFiftieth",
	}, {
		name: "parallel failures count each",
		file: "store/health.go",
		old:  "		if h.Failures > 0 && !startedAt.After(h.FailedAt) {",
		new:  "		if h.Failures < 0 {",
		pkg:  root, run: "TestParallelFailuresCountOnce|TestAFailureCountsIfItStartedAfterTheLastWasRecorded",
	}, {
		name: "a failure that started as the last was recorded counts",
		file: "store/health.go",
		old:  "!startedAt.After(h.FailedAt)",
		new:  "startedAt.Before(h.FailedAt)",
		pkg:  root, run: "TestAFailureCountsIfItStartedAfterTheLastWasRecorded",
	}, {
		name: "a failure is counted from its start, not from its record",
		file: "store/health.go",
		old:  "		h.FailedAt = now\n",
		new:  "		h.FailedAt = startedAt\n",
		pkg:  root, run: "TestAFailureCountsIfItStartedAfterTheLastWasRecorded",
	}, {
		name: "a success does not reset the count",
		file: "store/health.go",
		old:  "		h = Health{}\n",
		new:  "		h.DegradedUntil = time.Time{}\n",
		pkg:  root, run: "TestPausedAtTheFiftieth|TestAnySuccessResetsTheCount",
	}, {
		name: "each failure beyond the threshold is told",
		file: "store/health.go",
		old:  "h.Failures == p.DegradeAfter {",
		new:  "h.Failures >= p.DegradeAfter {",
		pkg:  root, run: "TestPausedAtTheFiftieth",
	}, {
		name: "refused addresses count towards health",
		file: "send.go",
		old:  "	if answer.Refused || answer.Final {",
		new:  "	if answer.Final {",
		pkg:  root, run: "TestWhatDoesNotCountTowardsHealth",
	}, {
		name: "a final failure is not told",
		file: "observer.go",
		old:  "	if o.Status == StatusFailed {",
		new:  "	if o.Status == StatusFailed && l.Attempts+1 == l.Budget {",
		pkg:  root, run: "TestAFinalAnswerIsNoticed",
	}, {
		name: "a replay takes any endpoint's delivery",
		file: "delivery.go",
		old:  "EndpointID: endpointID, EventID: eventID, Limit: 1}",
		new:  "EventID: eventID, Limit: 1}",
		pkg:  root, run: "TestReplayByEvent",
	},
}

// channelMutants break what messages promise.
var channelMutants = []mutant{
	{
		name: "a chat's endpoint has no pace of its own",
		file: "endpoint.go",
		old:  "		e.RateLimit = d.config.Channels.rateLimit(e.Kind)\n",
		new:  "		e.RateLimit = 0\n",
		pkg:  root, run: "TestChannelsKeepThePace",
	}, {
		name: "Discord may ping",
		file: "internal/channel/discord.go",
		old:  "discordMentions{Parse: []string{}}",
		new:  "discordMentions{Parse: []string{\"everyone\"}}",
		pkg:  channel, run: "TestAllowedMentionsIsEmpty",
	}, {
		name: "a link in Discord ends at a parenthesis of its own",
		file: "internal/channel/discord.go",
		old:  `strings.NewReplacer("(", "%28", ")", "%29")`,
		new:  `strings.NewReplacer("(", "%28")`,
		pkg:  channel, run: "TestLinkTargets",
	}, {
		name: "Telegram gets markup of the event's",
		file: "internal/channel/telegram.go",
		old:  "	_, _ = htmlEscape.WriteString(h, s)\n	h.WriteString(\"</\"",
		new:  "	h.WriteString(s)\n	h.WriteString(\"</\"",
		pkg:  channel, run: "TestGolden|TestTextStaysText",
	}, {
		name: "what is given is outside of code in Telegram",
		file: "internal/channel/telegram.go",
		old:  `			h.add("code", s.text)`,
		new:  `			h.add("", s.text)`,
		pkg:  channel, run: "TestTextStaysText",
	}, {
		name: "a Sentry event's id is another at each attempt",
		file: "internal/channel/sentry.go",
		old:  "	id := sentryEventID(e)\n",
		new:  "	e.DeliveryID += at.UnixNano()\n	id := sentryEventID(e)\n",
		pkg:  channel, run: "TestSentryEventID",
	}, {
		name: "a broken link is no error in Sentry",
		file: "internal/channel/sentry.go",
		old:  `		event.Level = "error"`,
		new:  `		event.Level = "warning"`,
		pkg:  channel, run: "TestSentryLevel",
	}, {
		name: "a failed payment is an error in Sentry",
		file: "internal/channel/sentry.go",
		old:  "	if n.tone == critical {",
		new:  "	if n.tone >= bad {",
		pkg:  channel, run: "TestSentryLevel",
	}, {
		name: "two things are one issue in Sentry",
		file: "internal/channel/sentry.go",
		old:  "	if n.about != \"\" {",
		new:  "	if n.tone == critical {",
		pkg:  channel, run: "TestSentryGroups",
	}, {
		name: "two workspaces are one issue in Sentry",
		file: "internal/channel/sentry.go",
		old:  `"workspace " + strconv.FormatInt(e.WorkspaceID, 10)}`,
		new:  `"workspace"}`,
		pkg:  channel, run: "TestSentryGroups",
	}, {
		name: "what to do is cut off",
		file: "internal/channel/telegram.go",
		old:  "	end := html{left: telegramText}\n",
		new:  "	n.todo = text(nil)\n	end := html{left: telegramText}\n",
		pkg:  channel, run: "TestWhatToDo",
	},
}
