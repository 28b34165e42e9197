// Package coverage holds the tests of the product to the list of requirements: it reads
// docs/requirements.md, finds which tests cite which item, and keeps
// docs/requirements-coverage.md true. To write that file anew:
//
//	go test ./internal/coverage -update
//
// A test cites an item by its id in a comment or a text of a _test.go file, or of an
// exported suite such as outboxtest. An item about programs and scripts may be cited
// where it is done (Makefile, .ci/run, scripts/), one about documentation by an HTML
// comment at its passage.
package coverage
