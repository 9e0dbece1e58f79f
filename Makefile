.PHONY: test check lint fuzz mutants bench peers ipv4 machine torture races interop e2e

test: ## the README's test command
	go test work

check: ## all that CI runs
	.ci/run

lint:
	golangci-lint run ./...

fuzz: ## every fuzz target, FUZZTIME each
	.ci/fuzz $(or $(FUZZTIME),2m)

mutants: ## breaks each promise on purpose, and wants to see a test fail
	go run ./internal/mutants $(if $(RUN),-run "$(RUN)")

machine: ## the state machine over the Dispatcher, at length: hours
	go test . -run TestMachine -rapid.checks=$(or $(CHECKS),5000) -rapid.steps=100 -timeout 0

torture: ## 200 processes killed at random while they publish and deliver; then some at every step there is
	go test . -run '^TestTorture$$/^host$$' -v -kills=$(or $(KILLS),200) -timeout 60m
	go test . -run '^TestCrashes$$' -v -kill-everywhere -timeout 60m

races: ## pauses, rotations, deletions, retries and stops, 1,000 times each
	go test -race . -run '^TestRaces$$' -v -races=$(or $(RACES),1000) -parallel 8 -timeout 0

interop: ## what is signed, verified by the libraries of others
	npm ci --prefix interop --ignore-scripts
	go -C interop test ./...

e2e: ## the dashboard in Chromium: the whole path, HTML, accessibility
	npm ci --prefix e2e --ignore-scripts
	npm test --prefix e2e

ipv4: ## every IPv4 address against a second, independently written classifier
	go test ./internal/egress -run TestSecondOpinionEverywhere -every-ipv4 -timeout 60m

peers: ## this library beside the bare loop and its peers
	go -C bench run .

bench: ## Go benchmarks, for benchstat
	go test -run '^$$' -bench . -benchmem -count $(or $(COUNT),6) work
