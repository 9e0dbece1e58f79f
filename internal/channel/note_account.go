package channel

import "strings"

// domain is the note of an event of a domain.
func (n *note) domain(action string, o object) bool {
	name := o.name("hostname", "domain", "name")
	if name == "" {
		name = "A domain"
		if id := o.text("domain_id", "id"); id != "" {
			name = "Domain " + id
		}
	}
	n.about = name
	switch action {
	case "verified":
		n.title, n.tone = say("{} was verified", name), good
		n.detail = say("Its DNS records were found; links can use it now.")
	case "ssl_failed":
		n.title, n.tone = say("DNS records of {} are still missing", name), bad
		n.detail = say("{}", o.text("error_message"))
		n.add("Added", o.when("added_at"))
	case "tls_renewed":
		n.title, n.tone = say("The certificate of {} was renewed", name), good
		n.add("Valid until", o.when("not_after"))
	default:
		return false
	}
	return true
}

// workspace is the note of an event of a workspace.
func (n *note) workspace(action string, o object) bool {
	name := o.name("name", "slug")
	switch action {
	case "created":
		n.title, n.tone = say("Workspace {} was created", name), good
	case "updated":
		n.title = say("Workspace {} was updated", name)
	default:
		return false
	}
	if name == "" {
		n.title = say("The workspace was " + action)
	}
	n.about = name
	n.add("Name", o.text("name"))
	n.add("Slug", o.text("slug"))
	n.add("Plan", o.text("plan"))
	n.add("Owner", o.who("owner", "owner_email", "owner_user_id"))
	return true
}

// member is the note of an event of a member or an invitation.
func (n *note) member(eventType string, o object) bool {
	name := cut(o.who("email", "name", "member", "user", "user_id"), subjectMost)
	if name == "" {
		name = "Someone"
	}
	n.about = name
	switch eventType {
	case "member.invited":
		n.title, n.tone = say("{} joined the workspace", name), good
		n.add("Role", o.text("role"))
		n.add("Invited by", o.who("invited_by", "invited_by_user_id"))
	case "member.removed":
		n.title, n.tone = say("{} is no longer a member", name), goodbye
		n.add("Role", o.text("role"))
		n.add("Removed by", o.who("removed_by", "removed_by_user_id"))
	case "member.role_changed":
		if role := o.name("new_role"); role != "" {
			n.title = say("{} is now {}", name, role)
		} else {
			n.title = say("{} was given another role", name)
		}
		n.add("Role before", o.text("old_role"))
		n.add("Changed by", o.who("changed_by", "changed_by_user_id"))
	case "invitation.created":
		n.title = say("{} was invited to the workspace", name)
		n.add("Role", o.text("role"))
		n.add("Invited by", o.who("invited_by", "invited_by_user_id"))
		n.add("Valid until", o.when("expires_at"))
	case "invitation.accepted":
		n.title, n.tone = say("{} accepted the invitation", name), good
		n.add("Role", o.text("role"))
	default:
		return false
	}
	return true
}

// auditChanges is how many changes of an audit log entry are shown.
const auditChanges = 10

// audit is the note of an entry of the audit log.
func (n *note) audit(action string, o object) bool {
	if action != "event" {
		return false
	}
	did := o.name("action")
	if did == "" {
		did = "an action"
	}
	n.title = say("Audit log: {}", did)
	n.about = did
	what := strings.TrimSpace(o.text("resource_type") + " " + o.text("resource_id"))
	n.add("What", cut(what, valueMost))
	n.add("By", o.who("actor", "actor_email", "actor_user_id"))
	changes := o.object("changes")
	for i, name := range sorted(changes) {
		if i == auditChanges {
			n.fields = append(n.fields, field{say("More"), say("{} more changes", itoa(len(changes)-i))})
			break
		}
		title := label(name)
		if title == "" {
			continue
		}
		value := say("{}", flat(changes[name]))
		if change := changes.object(name); change != nil {
			old, now := cut(flat(change["old"]), restValue), cut(flat(change["new"]), restValue)
			switch {
			case old != "" && now != "":
				value = say("{} → {}", old, now)
			case now != "":
				value = say("none → {}", now)
			case old != "":
				value = say("{} → none", old)
			}
		}
		if value.plain() != "" {
			n.fields = append(n.fields, field{say("{}", title), value})
		}
	}
	return true
}

// billing is the note of an event of a plan and of what it allows.
func (n *note) billing(eventType string, o object) bool {
	resource, action, _ := strings.Cut(eventType, ".")
	plan := o.name("plan", "new_plan")
	metric := o.name("metric", "quota", "resource")
	n.about = plan + metric
	switch {
	case eventType == "usage.threshold_80":
		n.title, n.tone = say("80% of the limit for {} is used", metric), warning
		if metric == "" {
			n.title = say("80% of a limit is used")
		}
	case eventType == "usage.threshold_100":
		n.title, n.tone = say("The limit for {} is used up", metric), bad
		if metric == "" {
			n.title = say("A limit is used up")
		}
	case eventType == "quota.warning":
		n.title, n.tone = say("The quota for {} is running out", metric), warning
		if metric == "" {
			n.title = say("A quota is running out")
		}
	case eventType == "billing.subscription_upgraded" && plan != "":
		n.title, n.tone = say("The workspace moved to the {} plan", plan), good
		n.add("Plan before", o.text("old_plan"))
	case resource == "subscription":
		words := ": " + strings.ToLower(sentence(action))
		switch action {
		case "activated":
			words, n.tone = " began", good
		case "renewed":
			words, n.tone = " was renewed", good
		case "canceled", "cancelled":
			words, n.tone = " was canceled", goodbye
		}
		if plan == "" {
			n.title = say("The subscription" + words)
		} else {
			n.title = say("The {} plan"+words, plan)
		}
		n.add("Amount", strings.TrimSpace(o.text("amount")+" "+o.text("currency")))
		n.add("Status", o.text("status"))
		n.add("Canceled", o.when("canceled_at"))
		n.add("Period ends", o.when("current_period_end"))
		return true
	default:
		return false
	}
	if used, limit := o.count("used", "usage"), o.count("limit", "quota_limit"); used != "" && limit != "" {
		n.fields = append(n.fields, field{say("Used"), say("{} of {}", used, limit)})
	} else {
		n.add("Used", used)
		n.add("Limit", limit)
	}
	if percent := o.text("percent", "percentage"); percent != "" {
		n.fields = append(n.fields, field{say("Percent used"), say("{}%", strings.TrimSuffix(percent, "%"))})
	}
	n.add("Period ends", o.when("period_end", "period_ends_at"))
	return true
}
