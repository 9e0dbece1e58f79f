//go:build !unix

package sqlitestore_test

import "os/exec"

func asNobody(*exec.Cmd) {}
