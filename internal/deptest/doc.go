// Package deptest holds no code but a test: which package may import which. It keeps the
// table of docs/architecture.md true (MOD-006, AMB-006).
package deptest
