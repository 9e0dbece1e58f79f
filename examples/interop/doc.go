// Package interop proves, with its test, that what a Dispatcher sends is
// accepted by receivers that were written from the documentation alone: those
// in examples/receiver-node and examples/receiver-python, and package verify.
//
//	go test ./examples/interop
//
// Each receiver runs as a process of its own on the loopback interface and goes
// through the same life: it fails and is tried again, gets a delivery twice,
// sees its secret replaced, and has forged requests to refuse. What a machine
// does not have (node, Express, python3, Flask) is skipped with a message that
// says how to get it; with CI=true that is a failure.
package interop
