//go:build unix && cgo

package sqlitestore

import "syscall"

// errReadOnlyFS is what opening a file on a read-only file system returns.
var errReadOnlyFS error = syscall.EROFS
