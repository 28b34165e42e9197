module github.com/orbitkit/orbit/bench

go 1.26.0

require (
	github.com/go-sql-driver/mysql v1.10.1
	github.com/orbitkit/orbit v0.0.0
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/go-json-experiment/json v1.27.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
)

replace github.com/orbitkit/orbit => ../
