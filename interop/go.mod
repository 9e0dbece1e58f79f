module github.com/elido-app/webhook/interop

go 1.26.0

replace github.com/elido-app/webhook => ../

require (
	github.com/elido-app/webhook v0.0.0
	github.com/getsentry/sentry-go v0.50.0
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1
	github.com/stretchr/testify v1.12.1
	github.com/stripe/stripe-go/v82 v82.5.1
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	golang.org/x/time v0.14.0 // indirect
)
