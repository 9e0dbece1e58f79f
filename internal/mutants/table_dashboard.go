package main

var dashboardMutants = []mutant{
	{
		name: "forms of other sites are accepted",
		file: "dashboard/visit.go",
		old:  "	if v.origin.Check(v.r) != nil || !v.saysWhere() {",
		new:  "	if !v.saysWhere() {",
		pkg:  pages, run: "TestFormsComeFromHere",
	}, {
		name: "a form that says nothing of where it comes from is accepted",
		file: "dashboard/visit.go",
		old:  "	if v.origin.Check(v.r) != nil || !v.saysWhere() {",
		new:  "	if v.origin.Check(v.r) != nil {",
		pkg:  pages, run: "TestFormsComeFromHere",
	}, {
		name: "the dashboard asks for permission to view alone",
		file: "dashboard/visit.go",
		old:  "	if permission == PermissionEdit {\n		return err\n	}",
		new:  "",
		pkg:  pages, run: "TestWhoMayDoWhat",
	}, {
		name: "whoever may edit may view",
		file: "dashboard/visit.go",
		old:  "	if err := v.authorize(PermissionView); err != nil {\n		return err\n	}",
		new:  "",
		pkg:  pages, run: "TestWhoMayDoWhat",
	}, {
		name: "a delivery of another endpoint is shown",
		file: "dashboard/visit.go",
		old:  "	if errors.Is(err, webhook.ErrNotFound) || err == nil && one.EndpointID != e.ID {",
		new:  "	if errors.Is(err, webhook.ErrNotFound) {",
		pkg:  pages, run: "TestIdsOfOthers",
	}, {
		name: "a rotation does not say what was seen",
		file: "dashboard/rotate.go",
		old:  "		Seen: &seen, NoOverlap:",
		new:  "		Seen: map[bool]*int{true: &seen}[false], NoOverlap:",
		pkg:  pages, run: "TestRotate",
	}, {
		name: "an endpoint is added twice",
		file: "dashboard/save.go",
		old:  "	if !f.again {",
		new:  "	if false {",
		pkg:  pages, run: "TestTheSameFormTwice",
	}, {
		name: "two forms at once add two endpoints",
		file: "dashboard/save.go",
		old:  "	v.adding.Lock()\n	defer v.adding.Unlock()\n",
		new:  "",
		pkg:  pages, run: "TestTheSameFormTwice",
	}, {
		name: "a masked header goes to another host",
		file: "dashboard/save.go",
		old:  "	if moves && masked {",
		new:  "	if moves && masked && false {",
		pkg:  pages, run: "TestEdit",
	}, {
		name: "a stale form overwrites",
		file: "dashboard/save.go",
		old:  "	if f.Seen != state(e) {",
		new:  "	if false {",
		pkg:  pages, run: "TestEdit",
	}, {
		name: "typed credentials come back",
		file: "dashboard/form.go",
		old:  "		return name + \": \"\n	})",
		new:  "		return name + \": \" + value\n	})",
		pkg:  pages, run: "TestMistakesAreToldBesideTheField",
	}, {
		name: "a Discord token comes back",
		file: "dashboard/form.go",
		old:  "		f.URL = \"\"\n",
		new:  "",
		pkg:  pages, run: "TestMistakesAreToldBesideTheField",
	}, {
		name: "credentials among the headers are shown",
		file: "dashboard/delivery.go",
		old:  "		if confidential(name) {\n			value = mask\n		}\n",
		new:  "",
		pkg:  pages, run: "TestPagesAreWhole",
	}, {
		name: "pages may be stored",
		file: "dashboard/page.go",
		old:  "	h.Set(\"Cache-Control\", \"no-store\")\n",
		new:  "",
		pkg:  pages, run: "TestTheSecretIsShownOnce",
	}, {
		name: "characters that turn the direction of writing are shown as they are",
		file: "dashboard/text.go",
		old:  "unicode.In(r, unicode.Cc, unicode.Cf,",
		new:  "unicode.In(r, unicode.Cc,",
		pkg:  pages, run: "TestWhatOthersSentIsText",
	}, {
		name: "deeply nested JSON is laid out",
		file: "dashboard/text.go",
		old:  " || depth(b) > depthMost",
		new:  "",
		pkg:  pages, run: "TestDocument",
	}, {
		name: "Russian counts as English does",
		file: "dashboard/language.go",
		old:  "plural: russian",
		new:  "plural: oneOther",
		pkg:  pages, run: "TestPluralRules",
	},
}
