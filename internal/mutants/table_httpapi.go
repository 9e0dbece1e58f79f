package main

var httpapiMutants = []mutant{
	{
		name: "nobody asks the host",
		file: "httpapi/request.go",
		old:  "	if err := a.authorize(q, route.permission); err != nil {\n		return answer{}, err\n	}",
		new:  "	_ = a.authorize(q, route.permission)",
		pkg:  httpapi, run: "TestPermissions",
	}, {
		name: "who may look may rotate",
		file: "httpapi/httpapi.go",
		old:  `"/rotate-secret", PermissionEdit, `,
		new:  `"/rotate-secret", PermissionView, `,
		pkg:  httpapi, run: "TestPermissions",
	}, {
		name: "the text of the host's refusal is shown",
		file: "httpapi/request.go",
		old:  "	return problemForbidden(permission)",
		new:  "	return problemForbidden(permission + err.Error())",
		pkg:  httpapi, run: "TestPermissions",
	}, {
		name: "a delivery is found at any endpoint",
		file: "httpapi/deliveries.go",
		old:  "	if err == nil && v.EndpointID != q.endpointID {",
		new:  "	if false {",
		pkg:  httpapi, run: "TestWhatIsAnothersIsNotFound",
	}, {
		name: "the log of an endpoint that is not there is empty",
		file: "httpapi/deliveries.go",
		old:  "	if _, err := a.d.Endpoint(q.Context(), q.workspaceID, q.endpointID); err != nil {\n		return answer{}, err\n	}\n",
		new:  "",
		pkg:  httpapi, run: "TestWhatIsAnothersIsNotFound",
	}, {
		name: "a rotation need not say what it has seen",
		file: "httpapi/endpoints.go",
		old:  `	b.require("seen_rotations", `,
		new:  `	_ = append([]string{}, "seen_rotations", `,
		pkg:  httpapi, run: "TestRotating",
	}, {
		name: "a member that is not known is ignored",
		file: "httpapi/body.go",
		old:  "	b.errs = append(b.errs, inOrder(unknown)...)",
		new:  "	_ = inOrder(unknown)",
		pkg:  httpapi, run: "TestBadFields",
	}, {
		name: "null is as good as nothing",
		file: "httpapi/body.go",
		old:  "		b.refuse(name, \"must not be null; leave it out\")",
		new:  "",
		pkg:  httpapi, run: "TestBadFields",
	}, {
		name: "a member may come twice",
		file: "httpapi/body.go",
		old:  "		if _, twice := raw[name]; twice {",
		new:  "		if _, twice := raw[name]; twice && false {",
		pkg:  httpapi, run: "TestBadBodies",
	}, {
		name: "something may follow the body",
		file: "httpapi/body.go",
		old:  "err != io.EOF {",
		new:  "err == nil && false {",
		pkg:  httpapi, run: "TestBadBodies",
	}, {
		name: "half of a surrogate pair is replaced",
		file: "httpapi/body.go",
		old:  "	case brokenSurrogate(text):",
		new:  "	case false:",
		pkg:  httpapi, run: "TestBadBodies",
	}, {
		name: "a body has no limit",
		file: "httpapi/body.go",
		old:  "const bodyMost = 256 << 10",
		new:  "const bodyMost = 256 << 20",
		pkg:  httpapi, run: "TestBadBodies",
	}, {
		name: "a form is a body too",
		file: "httpapi/body.go",
		old:  "	case err != nil, contentType != \"application/json\", ",
		new:  "	case err != nil && false, contentType == \"\", ",
		pkg:  httpapi, run: "TestBadBodies",
	}, {
		name: "pages of other sites may change things",
		file: "httpapi/httpapi.go",
		old:  "	if a.origin.Check(r) != nil {",
		new:  "	if a.origin.Check(r) != nil && false {",
		pkg:  httpapi, run: "TestOtherSitesAreRefused",
	}, {
		name: "an id may be written in many ways",
		file: "httpapi/request.go",
		old:  " && strconv.FormatInt(n, 10) == s",
		new:  "",
		pkg:  httpapi, run: "TestBadIDs",
	}, {
		name: "a parameter that is not known is ignored",
		file: "httpapi/request.go",
		old:  "		case !slices.Contains(known, name):",
		new:  "		case false:",
		pkg:  httpapi, run: "TestBadQueries",
	}, {
		name: "an internal error is shown",
		file: "httpapi/problem.go",
		old:  "		p.Reference = rand.Text()",
		new:  "		p.Reference, p.Detail = rand.Text(), err.Error()",
		pkg:  httpapi, run: "TestFaultsAreNotShown",
	}, {
		name: "what a receiver sent is shown without its bytes",
		file: "store/json.go",
		old:  "	if utf8.Valid(b) {\n		return nil",
		new:  "	if utf8.Valid(b) || true {\n		return nil",
		pkg:  httpapi, run: "TestWhatAReceiverSentIsShown",
	},
}
