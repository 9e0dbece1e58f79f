//go:build !unix && cgo

package sqlitestore

import "io/fs"

var errReadOnlyFS = fs.ErrPermission
