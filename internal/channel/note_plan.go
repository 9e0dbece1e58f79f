package channel

import "strings"

// subscription is the note of an event of a plan that is paid for: three are of
// the catalog, and hosts register more.
func (n *note) subscription(action string, c content) bool {
	o := c.data
	plan := o.words("plan", "plan_name", "new_plan")
	n.about = orElse(o.text("subscription_id", "id"), plan)
	title := "The {} plan "
	if plan = cut(plan, subjectMost); plan == "" {
		title = "The subscription "
	}
	n.tone = toneOf(action)
	end := o.when("current_period_end", "period_end")
	switch action {
	case "":
		return false
	case "canceled", "cancelled":
		title, n.tone = title+"was canceled", goodbye
		if end != "" {
			n.detail = say("It lasts until {}.", end)
			end = ""
		}
	case "past_due", "unpaid", "overdue":
		title, n.tone = title+"is "+words(action), bad
	case "expired", "ended":
		title, n.tone = title+"has "+action, goodbye
	default:
		part, does, _ := strings.Cut(action, "_")
		verb := partDoes[does]
		switch {
		case part == "payment" && verb != "":
			title = "A payment for " + lower(title) + verb
		case part == "trial" && verb != "":
			title = "The trial of " + lower(title) + verb
		case strings.HasSuffix(action, "ed") && !strings.ContainsAny(action, "._"):
			title += "was " + lower(sentence(action))
		default:
			title = strings.TrimSuffix(title, " ") + ": " + lower(sentence(action))
		}
	}
	n.title = say(title, plan)
	switch {
	case aboutPayment(action):
		n.todo = say("Check the payment method. The plan may end while a payment is missing.")
	case action == "trial_ending" || action == "trial_will_end":
		n.todo = say("To keep the plan, see that it can be paid for before the trial ends.")
	}
	n.because(o.show("failure_reason"))
	n.add("Amount", o.money("amount"))
	if status := o.words("status"); status != "active" && status != words(action) {
		n.add("Status", status)
	}
	n.add("Canceled", o.when("canceled_at"))
	n.add("Current period ends", end)
	n.rest(c, "workspace_id", "subscription_id", "plan", "plan_name", "new_plan", "failure_reason", "amount", "currency",
		"status", "canceled_at", "current_period_end", "period_end")
	return true
}

// partDoes is what becomes of a plan's payment or trial, by the rest of an event
// type's name.
var partDoes = map[string]string{
	"declined": "was declined", "ended": "has ended", "ending": "ends soon", "expired": "has ended", "failed": "failed",
	"received": "was received", "refunded": "was refunded", "required": "is required", "started": "began",
	"succeeded": "was received", "will_end": "ends soon",
}

const (
	todoLimit   = "Ask the workspace's owner for a higher limit."
	todoPeriod  = "Ask the workspace's owner for a higher limit, or wait until the period ends."
	todoRunsOut = "If more will be needed, ask the workspace's owner for a higher limit."
)

// plan is the note of an event of what a plan allows, and of one that grew.
func (n *note) plan(eventType string, o object) bool {
	metric := cut(o.words("metric", "quota", "resource"), subjectMost)
	n.about = metric
	switch eventType {
	case "usage.threshold_80":
		n.title, n.tone, n.todo = say("80% of the limit for {} is used", metric), warning, say(todoRunsOut)
		if metric == "" {
			n.title = say("80% of a limit is used")
		}
	case "usage.threshold_100":
		n.title, n.tone, n.todo = say("The limit for {} is used up", metric), bad, say(todoLimit)
		if metric == "" {
			n.title = say("A limit is used up")
		}
	case "quota.warning":
		n.title, n.tone, n.todo = say("The quota for {} is running out", metric), warning, say(todoRunsOut)
		if metric == "" {
			n.title = say("A quota is running out")
		}
	case "billing.subscription_upgraded":
		plan := cut(o.words("new_plan", "plan"), subjectMost)
		n.title, n.tone = say("The workspace moved to the {} plan", plan), good
		if plan == "" {
			n.title = say("The workspace moved to a larger plan")
		}
		n.about = o.text("subscription_id")
		n.add("Plan before", o.words("old_plan"))
		return true
	default:
		return false
	}
	end := o.when("period_end", "period_ends_at")
	if end != "" && eventType == "usage.threshold_100" {
		n.todo = say(todoPeriod)
	}
	used, limit := o.text("used", "usage"), o.text("limit", "quota_limit")
	of := orElse(percent(o.text("percent", "percentage")), share(used, limit))
	switch used, limit := figure(used), figure(limit); {
	case used != "" && limit != "" && of != "":
		n.fields = append(n.fields, field{say("Used"), say("{} of {} ({})", used, limit, of)})
	case used != "" && limit != "":
		n.fields = append(n.fields, field{say("Used"), say("{} of {}", used, limit)})
	default:
		n.add("Used", orElse(used, of))
		n.add("Limit", limit)
	}
	n.add("Period ends", end)
	return true
}
