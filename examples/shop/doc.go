// Package shop is two programs by somebody who had only the README and go doc: a
// shop with an HTTP API that tells of orders by webhook, from one SQLite file
// and in one transaction with the order, and a receiver that handles each
// delivery once, in one transaction with its own write.
//
//	go run ./examples/shop/embedder
//	WEBHOOK_SECRET=whsec_… go run ./examples/shop/receiver
//
// The test runs both, through a pause, a rotation, a receiver that is away, and
// a retry by hand.
package shop
