//go:build !cgo

package sqlitestore

// SQLite is C. The next line does not compile, and says what to do.
var _ = store_sqlite_needs_cgo__install_a_C_compiler_and_set_CGO_ENABLED_1
