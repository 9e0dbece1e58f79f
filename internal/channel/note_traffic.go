package channel

import "strings"

// traffic is the note of an event of the traffic catalog, or of one planned.
func (n *note) traffic(eventType string, c content) bool {
	o := c.data
	name := linkName(o)
	n.about = name
	n.url = link(o.text("short_url", "url"))
	switch eventType {
	case "click", "click.created":
		n.title = say("{} was clicked", name)
		n.visit(o)
	case "bio.click":
		n.title = say("A link on a bio page was clicked")
		if page := bioPage(o); page != "" {
			n.title = say("A link on the bio page {} was clicked", page)
		}
		n.visit(o)
	case "qr.scan":
		n.title = say("The QR code of {} was scanned", name)
		n.visit(o)
	case "qr.generated":
		n.title, n.tone = say("A QR code was made for {}", name), good
		n.add("Format", o.text("format"))
		n.add("Made by", o.who("created_by", "created_by_user_id"))
	case "conversion", "conversion.recorded":
		what := o.name("event_name")
		n.title, n.tone = say("Conversion: {}", what), good
		if what == "" {
			n.title = say("A click led to a conversion")
		}
		n.add("Value", strings.TrimSpace(o.text("value")+" "+o.text("currency")))
		n.add("Product", o.text("product_id"))
		if id := o.text("link_id"); id != "" {
			n.add("Link", name)
		}
		n.add("Click", o.text("click_id"))
		n.add("Forwarded to", orElse(o.list("forwarded_to"), o.text("forwarded_to")))
	case "bio.published":
		n.title, n.tone = say("A bio page was published"), good
		if page := bioPage(o); page != "" {
			n.title = say("The bio page {} was published", page)
		}
		n.add("Title", o.text("title"))
		n.add("Published by", o.who("published_by", "published_by_user_id", "created_by_user_id"))
	case "daily.summary":
		n.title = say("Daily summary")
		if day := o.name("date", "day"); day != "" {
			n.title = say("Summary of {}", day)
		}
		n.rest(c, "date", "day", "workspace_id")
	case "campaign.ended":
		n.title, n.tone = say("A campaign has ended"), goodbye
		if name := o.name("name", "campaign", "slug", "campaign_id"); name != "" {
			n.title = say("The campaign {} has ended", name)
		}
		n.rest(c, "name", "workspace_id")
	case "alert.threshold_exceeded":
		n.title, n.tone = say("Alert: a value is over its threshold"), bad
		if what := o.name("name", "metric"); what != "" {
			n.title = say("Alert: {} is over its threshold", what)
		}
		n.rest(c, "name", "workspace_id")
	case "abuse.flagged":
		n.title, n.tone = say("{} was flagged as abusive", name), bad
		n.add("Reason", o.text("reason"))
		n.add("Flagged", o.when("flagged_at"))
	default:
		return false
	}
	return true
}

func bioPage(o object) string {
	return o.name("slug", "page_slug", "bio_slug", "name", "title", "bio_id", "id")
}

// visit tells where somebody came from and with what.
func (n *note) visit(o object) {
	n.add("Destination", o.text("destination_url"))
	n.add("Country", o.text("country"))
	var device []string
	for _, member := range []string{"device_type", "os_family", "user_agent_family"} {
		if s := o.text(member); s != "" {
			device = append(device, s)
		}
	}
	n.add("Device", cut(strings.Join(device, ", "), valueMost))
	n.add("Referrer", o.text("referrer"))
	var campaign []string
	for _, member := range []string{"utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content"} {
		if s := o.text(member); s != "" {
			campaign = append(campaign, s)
		}
	}
	n.add("Campaign", cut(strings.Join(campaign, " / "), valueMost))
}

// orElse returns s, or if that is empty, the other.
func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
