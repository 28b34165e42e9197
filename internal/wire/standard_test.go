package wire_test

import (
	"bytes"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/orbitkit/orbit/internal/wire"
)

// standard compiles a part of the schema with a validator that knows nothing of ours. It
// refuses what JSON Schema 2020-12 does not know, so that tools of other languages can
// read the schema too.
func standard(t *testing.T, part string) *jsonschema.Schema {
	t.Helper()
	const url = "https://orbit.invalid/schema.json"
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(wire.Schema))
	if err != nil {
		t.Fatal(err)
	}
	delete(document.(map[string]any), "$id") // it is compiled under a name of our own
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource(url, document); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile(url + part)
	if err != nil {
		t.Fatalf("schema.json is no JSON Schema 2020-12: %v", err)
	}
	return schema
}

// standardCheck is wiretest.Check by that validator.
func standardCheck(t *testing.T, sender, frame string) error {
	t.Helper()
	return validate(t, standard(t, "#/$defs/"+sender), frame)
}

func validate(t *testing.T, schema *jsonschema.Schema, frame string) error {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(frame)))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(value)
}

// schemaWords are the words of JSON Schema that the schema uses, where a schema may stand.
var schemaWords = map[string]bool{
	"$schema": true, "$id": true, "$ref": true, "$defs": true, "title": true, "description": true, "oneOf": true, "type": true,
	"additionalProperties": true, "required": true, "properties": true, "items": true, "minItems": true, "maxItems": true,
	"pattern": true, "minLength": true, "maxLength": true, "minimum": true, "maximum": true, "enum": true, "const": true,
	"not": true, "if": true, "then": true, "else": true,
}

// A reference may only lead to a place where a schema stands by the standard: what lies
// below a word that it does not know is no schema to other tools.
func TestTheSchemaUsesOnlyWordsOfJSONSchema(t *testing.T) { // WRK-010
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(wire.Schema))
	if err != nil {
		t.Fatal(err)
	}
	var walk func(path string, schema any)
	walk = func(path string, schema any) {
		object, ok := schema.(map[string]any)
		if !ok {
			return
		}
		for word, value := range object {
			if !schemaWords[word] {
				t.Errorf("%s: %q is no word of JSON Schema that is expected here", path, word)
			}
			switch word {
			case "$defs", "properties":
				for name, one := range value.(map[string]any) {
					walk(path+"/"+word+"/"+name, one)
				}
			case "oneOf":
				for _, one := range value.([]any) {
					walk(path+"/"+word, one)
				}
			case "items", "not", "if", "then", "else":
				walk(path+"/"+word, value)
			}
		}
	}
	walk("#", document)
}
