package channel

import (
	"strconv"
	"strings"
)

// traffic is the note of an event of a visitor, or of where visitors come to.
func (n *note) traffic(eventType string, o object) bool {
	name := linkName(o)
	n.about = orElse(o.text("link_id"), name.text)
	_ = n.open(o.text("destination_url"), openDestination) || n.open(o.text("short_url"), openShort)
	switch eventType {
	case "click", "click.created":
		n.title = say("{} was clicked", name.first())
		n.visit(o)
	case "bio.click":
		n.title = say("A link on a bio page was clicked")
		if page := bioPage(o); page != "" {
			n.title = say("A link on {} was clicked", page)
			n.about += " on " + page
		}
		n.add("Link", name.field(o))
		n.visit(o)
	case "qr.scan":
		n.title = say("The QR code of {} was scanned", name.text)
		n.visit(o)
	case "qr.generated":
		n.title, n.tone = say("A QR code was made for {}", name.text), good
		n.add("Format", o.text("format"))
		n.add("Made by", o.who("created_by", "created_by_user_id"))
	case "conversion", "conversion.recorded":
		n.conversion(name.field(o), o)
	case "bio.published":
		page := bioPage(o)
		n.about = orElse(o.text("bio_id", "id"), page)
		n.title, n.tone = say("A bio page was published"), good
		if page != "" {
			n.title = say("{} was published", capital(page))
		}
		n.open(o.text("url", "short_url"), openBioPage)
		n.add("Title", o.text("title"))
		n.add("Address", o.text("url", "short_url"))
		n.add("Published by", o.who("published_by", "published_by_user_id", "created_by_user_id"))
	default:
		return false
	}
	return true
}

// conversion tells of a click that led to something.
func (n *note) conversion(link string, o object) {
	what := cut(o.words("event_name"), subjectMost)
	n.title, n.tone = say("Conversion: {}", what), good
	if what == "" {
		n.title = say("A click led to a conversion")
	} else {
		n.about += " " + what
	}
	n.add("Value", o.money("value"))
	n.add("Product", o.text("product_id"))
	if o.text("link_id", "slug", "short_url") != "" {
		n.add("Link", link)
	}
	n.add("Click ID", o.text("click_id"))
	var forwarded []string
	for name := range strings.SplitSeq(orElse(o.list("forwarded_to"), o.text("forwarded_to")), ", ") {
		forwarded = append(forwarded, words(name))
	}
	n.add("Forwarded to", strings.Join(forwarded, ", "))
}

// bioPage returns what people call a bio page, to be put into a sentence.
func bioPage(o object) string {
	if name := o.name("page_slug", "bio_slug"); name != "" {
		return "bio page " + name
	}
	if o.text("link_id") == "" { // otherwise these are of the link
		if name := o.name("slug", "name", "title"); name != "" {
			return "bio page " + name
		}
	}
	if id := o.text("bio_id", "id"); id != "" {
		return "bio page " + number(id)
	}
	return ""
}

// visit tells where somebody came from and with what.
func (n *note) visit(o object) {
	n.add("Destination", o.text("destination_url"))
	n.add("Country", o.text("country"))
	var device []any
	for _, member := range []string{"device_type", "os_family", "user_agent_family"} {
		device = append(device, o[member])
	}
	n.add("Device", join(device))
	n.add("Referrer", o.text("referrer"))
	for _, member := range []string{"utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content"} {
		n.add(label(member), o.text(member))
	}
}

// figures is the note of an event that sums up.
func (n *note) figures(eventType string, c content) bool {
	o := c.data
	switch eventType {
	case "daily.summary":
		n.title = say("Daily summary")
		if day := o.name("date", "day"); day != "" {
			n.title = say("Summary of {}", readable(day))
		}
		n.rest(c, "date", "day", "workspace_id")
	case "campaign.ended":
		n.title, n.tone = say("A campaign has ended"), goodbye
		name := o.name("name", "campaign", "slug")
		if id := o.name("campaign_id"); name == "" && id != "" {
			name = number(id)
		}
		if name != "" {
			n.title = say("The campaign {} has ended", name)
		}
		n.about = orElse(o.text("campaign_id"), name)
		n.rest(c, "name", "workspace_id")
	case "alert.threshold_exceeded":
		n.alert(c)
	default:
		return false
	}
	return true
}

// alert tells of a value that is beyond where somebody wants to be told.
func (n *note) alert(c content) {
	o := c.data
	metric := cut(o.words("metric"), subjectMost)
	name := orElse(o.name("name"), metric)
	n.about = orElse(o.text("alert_id"), name)
	value, threshold := o.count("value"), o.count("threshold")
	is := " is " + beyond(o.text("value"), o.text("threshold")) + " its threshold"
	n.title, n.tone = say("Alert: {}"+is, name), warning
	if name == "" {
		n.title = say("Alert: a value" + is)
	}
	if value != "" && threshold != "" {
		n.detail = say("It is at {}; the threshold is {}.", value, threshold)
	}
	n.todo = say("Check whether this is expected.")
	skip := []string{"name", "value", "threshold", "workspace_id"}
	if n.detail == nil {
		skip = []string{"name", "workspace_id"}
	}
	if name == metric {
		skip = append(skip, "metric")
	}
	_ = n.open(o.text("destination_url"), openDestination) || n.open(o.text("short_url"), openShort)
	n.rest(c, skip...)
}

// beyond says on which side of a threshold a value is.
func beyond(value, threshold string) string {
	v, err1 := strconv.ParseFloat(value, 64)
	t, err2 := strconv.ParseFloat(threshold, 64)
	switch {
	case err1 != nil || err2 != nil:
		return "beyond"
	case v > t:
		return "above"
	case v < t:
		return "below"
	}
	return "at"
}

// orElse returns s, or if that is empty, the other.
func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
