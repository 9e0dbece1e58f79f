// Package interop proves, with its tests, that what a Dispatcher signs is verified
// by software that is not ours: Stripe's libraries for Go and Node.js (the layout
// of Elido-Signature is theirs) and those of Standard Webhooks, in and out of a
// rotation's overlap, and with several schemes on one request. The other way
// round, package verify takes what they sign. And Sentry's SDK understands by a DSN
// what we do. Package api beside it is for the management API and its OpenAPI document.
//
//	npm ci --prefix interop --ignore-scripts
//	go -C interop test ./...
//
// It is a module of its own, outside of the workspace, so that none of those
// libraries gets anywhere near a program that embeds this one. Without node, or
// without the packages, the tests that need them are skipped; with CI=true that is
// a failure.
package interop
