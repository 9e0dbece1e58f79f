package webhook

import "encoding/json"

// DefaultCatalog returns a new Catalog with Elido's event types, to be used as
// it is or added to. "password_hash" is secret in all types, "token" in
// "invitation.*", "member.invited" and "audit.event".
func DefaultCatalog() *Catalog {
	c := new(Catalog)
	c.Secret("password_hash")
	for _, pattern := range []string{"invitation.*", "member.invited", "audit.event"} {
		must(c.SecretIn(pattern, "token"))
	}
	must(c.Add(formTypes()...))
	must(c.Add(furtherTypes()...))
	must(c.Add(plannedTypes()...))
	return c
}

// must guards what is fixed in this file.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func sample(s string) json.RawMessage { return json.RawMessage(s) }

// formTypes are those the dashboard's form offers.
func formTypes() []EventType {
	return []EventType{
		{
			Name:        "link.created",
			Description: "A link was created, alone or in bulk.",
			Form:        true,
			Ticked:      true,
			Sample: sample(`{"id":91834,"workspace_id":42,"domain_id":7,"slug":"spring-sale",` +
				`"destination_url":"https://shop.example.com/spring?ref=mail&lang=en","title":"Spring sale","tags":["spring","mail"],` +
				`"status":"active","abuse_status":"unchecked","expires_at":"2026-10-31T22:00:00Z","max_clicks":50000,` +
				`"redirect_status":302,"created_by_user_id":1187,"created_at":"2026-09-21T09:14:02.481375Z",` +
				`"updated_at":"2026-09-21T09:14:02.481375Z","targeting_rules":[{"country":"DE","destination_url":"https://shop.example.com/de/spring"}],` +
				`"folder_id":310,"campaign_id":58,"scan_status":"pending","scanned_at":null}`),
		},
		{
			Name:        "link.updated",
			Description: "Any field of a link changed, it was restored, or a moderation decision set its abuse_status.",
			Form:        true,
			Ticked:      true,
			Sample: sample(`{"id":91834,"workspace_id":42,"domain_id":7,"slug":"spring-sale",` +
				`"destination_url":"https://shop.example.com/spring-2026","title":"Spring sale 2026","tags":["spring"],` +
				`"status":"active","abuse_status":"clean","expires_at":null,"max_clicks":null,` +
				`"redirect_status":301,"created_by_user_id":1187,"created_at":"2026-09-21T09:14:02.481375Z",` +
				`"updated_at":"2026-09-22T16:40:55.019482Z","targeting_rules":[],` +
				`"folder_id":310,"campaign_id":null,"scan_status":"clean","scanned_at":"2026-09-21T09:14:09.77214Z"}`),
		},
		{
			Name:        "link.deleted",
			Description: "A link was deleted; it can still be restored.",
			Form:        true,
			Ticked:      true,
			Sample: sample(`{"id":91834,"workspace_id":42,"domain_id":7,"slug":"spring-sale",` +
				`"destination_url":"https://shop.example.com/spring-2026","title":"Spring sale 2026","tags":["spring"],` +
				`"status":"deleted","abuse_status":"clean","expires_at":null,"max_clicks":null,` +
				`"redirect_status":301,"created_by_user_id":1187,"created_at":"2026-09-21T09:14:02.481375Z",` +
				`"updated_at":"2026-09-30T07:02:31.600218Z","targeting_rules":[],` +
				`"folder_id":310,"campaign_id":null,"scan_status":"clean","scanned_at":"2026-09-21T09:14:09.77214Z"}`),
		},
		{
			Name:        "workspace.updated",
			Description: "A workspace's name, slug or settings changed.",
			Form:        true,
			Sample: sample(`{"id":42,"name":"Acme Marketing","slug":"acme","plan":"business","owner_user_id":1187,` +
				`"created_at":"2025-11-03T10:22:41.118904Z","updated_at":"2026-09-21T11:03:17.902133Z"}`),
		},
		{
			Name:        "workspace.created",
			Description: "A workspace was created. No endpoint can exist in it yet, so normally nobody receives this.",
			Form:        true,
			Sample: sample(`{"id":42,"name":"Acme","slug":"acme","plan":"free","owner_user_id":1187,` +
				`"created_at":"2025-11-03T10:22:41.118904Z","updated_at":"2025-11-03T10:22:41.118904Z"}`),
		},
		{
			Name:        "member.invited",
			Description: "Someone joined the workspace: added directly, by accepting an invitation, or by SCIM.",
			Form:        true,
			Sample:      sample(`{"workspace_id":42,"user_id":2043,"email":"dana@acme.example","role":"editor","invited_by_user_id":1187,"joined_at":"2026-09-21T12:30:08.441029Z"}`),
		},
		{
			Name:        "member.removed",
			Description: "A member left the workspace or was removed from it.",
			Form:        true,
			Sample:      sample(`{"workspace_id":42,"user_id":2043,"email":"dana@acme.example","role":"editor","removed_by_user_id":1187,"removed_at":"2026-09-28T08:15:44.730561Z"}`),
		},
		{
			Name:        "audit.event",
			Description: "An entry was written to the audit log.",
			Form:        true,
			Sample: sample(`{"id":558120,"workspace_id":42,"actor_user_id":1187,"action":"link.update","resource_type":"link","resource_id":"91834",` +
				`"changes":{"title":{"old":"Spring sale","new":"Spring sale 2026"}},"created_at":"2026-09-22T16:40:55.021117Z"}`),
		},
	}
}

// furtherTypes are subscribed to through the API.
func furtherTypes() []EventType {
	return []EventType{
		{
			Name:        "link.expired",
			Description: "A link reached its expiry time.",
			Sample:      sample(`{"link_id":91834,"slug":"spring-sale","destination_url":"https://shop.example.com/spring"}`),
		},
		{
			Name:        "link.cap_reached",
			Description: "A link reached its maximum number of clicks.",
			Sample:      sample(`{"link_id":91834,"slug":"spring-sale","destination_url":"https://shop.example.com/spring","cap":50000,"clicks":50000}`),
		},
		{
			Name:        "link.broken",
			Description: "A link's destination stopped answering, or answers with an error.",
			Sample: sample(`{"link_id":91834,"slug":"spring-sale","destination_url":"https://shop.example.com/spring",` +
				`"status_code":404,"error_message":"destination answered 404 Not Found","first_seen_at":"2026-09-24T03:00:12Z"}`),
		},
		{
			Name:        "link.encrypted_created",
			Description: "A link with an encrypted destination was created.",
			Sample:      sample(`{"link_id":91835,"slug":"board-minutes","key_version":1,"created_by_user_id":1187,"created_at":"2026-09-21T09:20:45.127308Z"}`),
		},
		{
			Name:        "link.encryption_rotated",
			Description: "An encrypted link was encrypted again under a new key.",
			Sample:      sample(`{"link_id":91835,"slug":"board-minutes","key_version":2,"rotated_by_user_id":1187,"rotated_at":"2026-09-29T14:05:30.884216Z"}`),
		},
		{
			Name:        "domain.verified",
			Description: "A custom domain's DNS records were found.",
			Sample:      sample(`{"domain_id":7,"hostname":"go.acme.example","verified_at":"2026-09-20T17:45:03Z"}`),
		},
		{
			Name:        "domain.ssl_failed",
			Description: "A custom domain's DNS records are still missing 24 hours after it was added.",
			Sample:      sample(`{"domain_id":7,"hostname":"go.acme.example","error_message":"CNAME record not found","added_at":"2026-09-19T17:40:00Z"}`),
		},
		{
			Name:        "member.role_changed",
			Description: "A member was given another role.",
			Sample:      sample(`{"workspace_id":42,"user_id":2043,"old_role":"editor","new_role":"admin","changed_by_user_id":1187}`),
		},
		{
			Name:        "invitation.created",
			Description: "Someone was invited to the workspace by email.",
			Sample: sample(`{"invitation_id":615,"workspace_id":42,"email":"dana@acme.example","role":"editor",` +
				`"invited_by_user_id":1187,"expires_at":"2026-09-28T12:10:00Z"}`),
		},
		{
			Name:        "invitation.accepted",
			Description: "An invitation to the workspace was accepted.",
			Sample: sample(`{"invitation_id":615,"workspace_id":42,"email":"dana@acme.example","role":"editor",` +
				`"user_id":2043,"accepted_at":"2026-09-21T12:30:08Z"}`),
		},
		{
			Name:        "subscription.activated",
			Description: "A paid plan began.",
			Sample: sample(`{"workspace_id":42,"subscription_id":"sub_3081","plan":"business","status":"active","amount":"49.50","currency":"EUR",` +
				`"current_period_end":"2026-10-21T00:00:00Z"}`),
		},
		{
			Name:        "subscription.renewed",
			Description: "A paid plan was renewed for another period.",
			Sample: sample(`{"workspace_id":42,"subscription_id":"sub_3081","plan":"business","status":"active","amount":"49.50","currency":"EUR",` +
				`"current_period_end":"2026-11-21T00:00:00Z"}`),
		},
		{
			Name:        "subscription.canceled",
			Description: "A paid plan was canceled; it lasts until the end of its period.",
			Sample: sample(`{"workspace_id":42,"subscription_id":"sub_3081","plan":"business","status":"canceled",` +
				`"canceled_at":"2026-11-02T13:28:54Z","current_period_end":"2026-11-21T00:00:00Z"}`),
		},
		{
			Name:        "usage.threshold_80",
			Description: "The workspace has used 80% of a limit of its plan.",
			Sample:      sample(`{"workspace_id":42,"metric":"clicks","used":80000,"limit":100000,"period_end":"2026-10-01T00:00:00Z"}`),
		},
		{
			Name:        "usage.threshold_100",
			Description: "The workspace has used up a limit of its plan.",
			Sample:      sample(`{"workspace_id":42,"metric":"clicks","used":100000,"limit":100000,"period_end":"2026-10-01T00:00:00Z"}`),
		},
	}
}

// plannedTypes are announced, and refused until they come.
func plannedTypes() []EventType {
	return []EventType{
		{
			Name:        "click.created",
			Description: "A link was clicked.",
			Planned:     true,
			Sample:      sample(`{"click_id":"01k5n4q9w2","link_id":91834,"country":"DE","device_type":"mobile","clicked_at":"2026-09-21T10:02:11Z"}`),
		},
		{
			Name:        "link.clicked.aggregated",
			Description: "How often a link was clicked in a period.",
			Planned:     true,
			Sample:      sample(`{"link_id":91834,"clicks":1284,"unique_clicks":1107,"from":"2026-09-21T10:00:00Z","to":"2026-09-21T11:00:00Z"}`),
		},
		{
			Name:        "conversion.recorded",
			Description: "A click led to a conversion.",
			Planned:     true,
			Sample:      sample(`{"conversion_id":"cv_7714","click_id":"01k5n4q9w2","link_id":91834,"event_name":"purchase","value":"49.50","currency":"EUR"}`),
		},
		{
			Name:        "domain.tls_renewed",
			Description: "A custom domain's certificate was renewed.",
			Planned:     true,
			Sample:      sample(`{"domain_id":7,"hostname":"go.acme.example","not_after":"2026-12-19T17:45:03Z"}`),
		},
		{
			Name:        "qr.generated",
			Description: "A QR code was made for a link.",
			Planned:     true,
			Sample:      sample(`{"qr_id":2206,"link_id":91834,"format":"svg","created_by_user_id":1187}`),
		},
		{
			Name:        "abuse.flagged",
			Description: "A link was flagged as abusive.",
			Planned:     true,
			Sample:      sample(`{"link_id":91834,"slug":"spring-sale","reason":"phishing","flagged_at":"2026-09-25T06:18:40Z"}`),
		},
		{
			Name:        "billing.subscription_upgraded",
			Description: "A workspace moved to a larger plan.",
			Planned:     true,
			Sample:      sample(`{"workspace_id":42,"subscription_id":"sub_3081","old_plan":"pro","new_plan":"business"}`),
		},
	}
}
