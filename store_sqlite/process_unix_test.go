//go:build unix

package sqlitestore_test

import (
	"os"
	"os/exec"
	"syscall"
)

// asNobody takes away the rights that root has on every file.
func asNobody(cmd *exec.Cmd) {
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
}
