package main

import "slices"

// The packages whose tests notice.
const (
	root     = "."
	egress   = "./internal/egress"
	scrub    = "./internal/scrub"
	sig      = "./internal/sig"
	verify   = "./verify"
	contract = "./store"
	memory   = "./store_memory"
	sqlite   = "./store_sqlite"
	httpapi  = "./httpapi"
	pages    = "./dashboard"
)

var table = slices.Concat(egressMutants, dispatcherMutants, signatureMutants, storeMutants, profileMutants, channelMutants, httpapiMutants, dashboardMutants)
