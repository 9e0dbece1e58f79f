package channel

import "strings"

// domain is the note of an event of a domain.
func (n *note) domain(action string, o object) bool {
	name := reference{text: o.name("hostname", "domain", "name")}
	if name.text == "" {
		name = byID("domain", o.text("domain_id", "id"))
	}
	n.about = name.text
	switch action {
	case "verified":
		n.title, n.tone = say("{} was verified", name.first()), good
		n.detail = say("Its DNS records were found; links can use it now.")
	case "ssl_failed":
		n.title, n.tone = say("DNS records of {} are still missing", name.text), bad
		n.detail = say("Links cannot use it until they are found.")
		n.todo = say("Add the missing records where the domain's DNS is managed. It can take some hours until they are seen.")
		n.because(o.text("error_message"))
		n.add("Domain added", o.when("added_at"))
	case "tls_renewed":
		n.title, n.tone = say("The certificate of {} was renewed", name.text), good
		n.add("Valid until", o.when("not_after"))
	default:
		return false
	}
	return true
}

// workspaceMembers are the members of a workspace that are shown.
var workspaceMembers = []string{"name", "slug", "plan", "owner", "owner_email", "owner_user_id"}

// workspace is the note of an event of a workspace.
func (n *note) workspace(action string, c content) bool {
	o := c.data
	if inner := c.data.object("workspace"); inner != nil {
		o = inner
	}
	name := o.name("name", "slug")
	fields := func() {
		n.add("Name", o.text("name"))
		n.add("Slug", o.text("slug"))
		n.add("Plan", o.words("plan"))
		n.add("Owner", o.who("owner", "owner_email", "owner_user_id"))
	}
	title := "The workspace {} was " + action
	if name == "" {
		title = "The workspace was " + action
	}
	switch action {
	case "created":
		n.tone = good
		fields()
	case "updated":
		n.update("workspace", c.data.object("previous"), o, workspaceMembers, fields)
	default:
		return false
	}
	n.title = say(title, name)
	return true
}

// member is the note of an event of a member or an invitation.
func (n *note) member(eventType string, o object) bool {
	name := reference{text: cut(o.who("email", "name", "member", "user"), subjectMost)}
	if name.text == "" {
		name = reference{orElse(cut(o.who("user_id"), subjectMost), "someone"), true}
	}
	n.about = orElse(o.text("user_id", "invitation_id"), name.text)
	role := o.words("role")
	switch eventType {
	case "member.invited":
		n.title, n.tone = say("{} joined the workspace", name.first()), good
		n.add("Role", role)
		n.add("Invited by", o.who("invited_by", "invited_by_user_id"))
	case "member.removed":
		n.title, n.tone = say("{} is no longer a member", name.first()), goodbye
		n.add("Role", role)
		n.add("Removed by", o.who("removed_by", "removed_by_user_id"))
	case "member.role_changed":
		n.title = say("The role of {} changed", name.text)
		if now := cut(orElse(o.words("new_role"), role), subjectMost); now != "" {
			n.title = say("The role of {} is now {}", name.text, now)
		}
		n.add("Role before", o.words("old_role"))
		n.add("Changed by", o.who("changed_by", "changed_by_user_id"))
	case "invitation.created":
		n.title = say("{} was invited to the workspace", name.first())
		n.add("Role", role)
		n.add("Invited by", o.who("invited_by", "invited_by_user_id"))
		n.add("Valid until", o.when("expires_at"))
	case "invitation.accepted":
		n.title, n.tone = say("{} accepted the invitation", name.first()), good
		n.add("Role", role)
	default:
		return false
	}
	return true
}

// audit is the note of an entry of the audit log.
func (n *note) audit(action string, o object) bool {
	if action != "event" {
		return false
	}
	did := o.name("action")
	what := o.words("resource_type")
	if id := o.text("resource_id"); id != "" {
		what = strings.TrimSpace(what + " " + number(id))
	}
	what = cut(what, subjectMost)
	n.about = strings.TrimSpace(did + " " + what)
	verb := did[strings.LastIndexByte(did, '.')+1:]
	switch done := participle(verb); {
	case done != "" && what != "":
		n.title = say("Audit log: {} was "+done, what)
	case did != "":
		n.title = say("Audit log: {}", words(strings.ReplaceAll(did, ".", "_")))
		n.add("What", what)
	default:
		n.title = say("Audit log: something was done")
		n.add("What", what)
	}
	n.add("By", o.who("actor", "actor_email", "actor_user_id"))
	n.add("Action", did)
	changes := o.object("changes")
	before, after, others := make(object), make(object), content{data: make(object)}
	for _, name := range sorted(changes) {
		change := changes.object(name)
		_, was := change["old"]
		if _, is := change["new"]; was || is {
			before[name], after[name] = change["old"], change["new"]
			continue
		}
		others.data[name], others.names = changes[name], append(others.names, name)
	}
	n.changed(before, after, sorted(after))
	n.rest(others)
	return true
}
