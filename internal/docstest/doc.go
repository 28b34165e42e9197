// Package docstest holds the documents to the code: what they show compiles, what they
// link to exists, and what they list is complete. It has tests only.
package docstest
