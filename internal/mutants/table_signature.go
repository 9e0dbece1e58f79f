package main

var signatureMutants = []mutant{
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
}
