// Package api proves, with its tests, that package httpapi and its OpenAPI document
// say the same, by software that is not ours: oapi-codegen generates a client from
// the document (package client), which goes through everything there is to call, and
// kin-openapi compares every request and every answer with it, those of httpapi's own
// tests included.
package api
