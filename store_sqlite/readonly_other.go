//go:build !unix

package sqlitestore

import "io/fs"

var errReadOnlyFS = fs.ErrPermission
