.PHONY: test check lint fuzz bench

test: ## the README's test command
	go test work

check: ## all that CI runs
	.ci/run

lint:
	golangci-lint run ./...

fuzz: ## every fuzz target, FUZZTIME each
	.ci/fuzz $(or $(FUZZTIME),2m)

bench: ## Go benchmarks, for benchstat
	go test -run '^$$' -bench . -benchmem -count $(or $(COUNT),6) work
