package webhook

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDefaultCatalog(t *testing.T) {
	var form, ticked, further, planned []string
	for _, eventType := range DefaultCatalog().Types() {
		switch {
		case eventType.Form:
			form = append(form, eventType.Name)
		case eventType.Planned:
			planned = append(planned, eventType.Name)
		default:
			further = append(further, eventType.Name)
		}
		if eventType.Ticked {
			ticked = append(ticked, eventType.Name)
		}
	}
	require.Equal(t, []string{
		"link.created", "link.updated", "link.deleted", "workspace.updated", "workspace.created",
		"member.invited", "member.removed", "audit.event",
	}, form)
	require.Equal(t, []string{"link.created", "link.updated", "link.deleted"}, ticked)
	require.Equal(t, []string{
		"link.expired", "link.cap_reached", "link.broken", "link.encrypted_created", "link.encryption_rotated",
		"domain.verified", "domain.ssl_failed", "member.role_changed", "invitation.created", "invitation.accepted",
		"subscription.activated", "subscription.renewed", "subscription.canceled",
		"usage.threshold_80", "usage.threshold_100", "test",
	}, further)
	require.Equal(t, []string{
		"click.created", "link.clicked.aggregated", "conversion.recorded", "domain.tls_renewed", "qr.generated",
		"abuse.flagged", "billing.subscription_upgraded",
	}, planned)
}

func TestDefaultCatalogEntries(t *testing.T) {
	c := DefaultCatalog()
	for _, eventType := range c.Types() {
		t.Run(eventType.Name, func(t *testing.T) {
			require.True(t, validName(eventType.Name))
			require.NotEmpty(t, eventType.Description)
			require.NotContains(t, eventType.Description, "\n")
			require.True(t, strings.HasSuffix(eventType.Description, "."))

			want := []string{"password_hash"}
			if strings.HasPrefix(eventType.Name, "invitation.") || eventType.Name == "member.invited" || eventType.Name == "audit.event" {
				want = append(want, "token")
			}
			require.Equal(t, want, eventType.Secret)

			scrubbed, err := c.compile(eventType).scrub(eventType.Sample, nil)
			require.NoError(t, err)
			require.Equal(t, string(eventType.Sample), string(scrubbed))
			if eventType.Subscribable() {
				p, err := c.prepare(Event{Type: eventType.Name, WorkspaceID: 42, Data: eventType.Sample}, nil, "", publishedAt)
				require.NoError(t, err)
				require.Equal(t, string(eventType.Sample), string(p.data))
			}
		})
	}
}

func TestDefaultCatalogIsFresh(t *testing.T) {
	require.NoError(t, DefaultCatalog().Add(EventType{Name: "order.paid"}))
	_, ok := DefaultCatalog().Lookup("order.paid")
	require.False(t, ok)
}

func TestSamplesHaveTheFields(t *testing.T) {
	link := []string{
		"id", "workspace_id", "domain_id", "slug", "destination_url", "title", "tags", "status", "abuse_status", "expires_at",
		"max_clicks", "redirect_status", "created_by_user_id", "created_at", "updated_at",
	}
	for name, fields := range map[string][]string{
		"link.created":        link,
		"link.updated":        link,
		"link.deleted":        link,
		"link.expired":        {"link_id", "slug", "destination_url"},
		"link.cap_reached":    {"link_id", "slug", "destination_url", "cap", "clicks"},
		"link.broken":         {"status_code", "error_message", "first_seen_at"},
		"member.role_changed": {"old_role", "new_role", "changed_by_user_id"},
		"test":                {"message"},
	} {
		eventType, ok := DefaultCatalog().Lookup(name)
		require.True(t, ok, name)
		var sample map[string]any
		require.NoError(t, json.Unmarshal(eventType.Sample, &sample))
		for _, field := range fields {
			require.Contains(t, sample, field, name)
		}
		require.NotContains(t, sample, "short_url", name)
	}
}
