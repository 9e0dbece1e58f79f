package postgresstore

import (
	"regexp"
	"strings"
	"sync"
)

// schema puts its name before the tables' in statements, so that they mean the
// same on every connection, whatever its search_path is.
type schema struct {
	name   string    // as it is
	prefix string    // quoted, with a dot
	cache  *sync.Map // statements by their text without it
	create bool      // it was named, so Migrate may create it
}

var tableNames = regexp.MustCompile(`\bwebhook_(counter|delivery_ids|locks|endpoints|subscriptions|events|` +
	`deliveries|attempts|idempotency|lanes|migrations)\b`)

func newSchema(name string) schema {
	quoted := `"` + strings.ReplaceAll(name, `"`, `""`) + `".`
	return schema{name: name, prefix: quoted, cache: &sync.Map{}}
}

// qualify returns a statement with the schema's name before each table's.
func (s schema) qualify(statement string) string {
	if q, ok := s.cache.Load(statement); ok {
		return q.(string)
	}
	q := tableNames.ReplaceAllString(statement, strings.ReplaceAll(s.prefix, "$", "$$")+"$0")
	s.cache.Store(statement, q)
	return q
}
