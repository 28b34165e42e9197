// Package strictjson reads JSON the way the contract wants it read: on text, by
// exact names, and without ever passing a number through a float.
//
// It refuses what lenient readers let pass: duplicate names at any level (also
// when spelled through escapes), invalid UTF-8, lone surrogates, unknown names
// and aliases by case, explicit nulls, nesting below 32 levels, data after the
// document, and numbers outside the contract's bounds. Each refusal is an
// [*Error] that names the place and the rule, and never repeats a value.
//
// Three uses share one walk over the tokens of jsontext: [Check] validates a
// document, [AppendCanonical] validates it and writes its canonical text, and
// [Decode] validates it and fills a struct.
package strictjson
