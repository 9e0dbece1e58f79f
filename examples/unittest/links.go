// Package unittest shows how a program tests its own publishing: on the memory
// store, with no server, no sleep and no mock. links.go is the code under test,
// links_test.go the lesson.
package unittest

import (
	"context"
	"fmt"

	"github.com/elido-app/webhook"
)

// Links is a part of some API that tells of what it does.
type Links struct {
	Webhooks *webhook.Dispatcher
}

// Delete deletes a link and publishes that it did.
func (l *Links) Delete(ctx context.Context, workspaceID, id int64, passwordHash string) error {
	// … delete the row …
	_, err := l.Webhooks.Publish(ctx, webhook.Event{
		Type:        "link.deleted",
		WorkspaceID: workspaceID,
		Data:        map[string]any{"id": id, "password_hash": passwordHash},
		OrderingKey: fmt.Sprint(id),
	})
	return err
}
