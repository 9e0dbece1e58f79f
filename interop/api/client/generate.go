// Package client is generated from the OpenAPI document of package httpapi, by
// oapi-codegen. It is for the tests beside it; generate one of your own.
package client

//go:generate go tool oapi-codegen -generate types,client -package client -o client.gen.go ../../../httpapi/openapi.yaml
