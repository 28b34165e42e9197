package cli

import (
	"encoding/json"
	"testing"
)

// Texts of others cannot steer a terminal, and mean the same.
func TestJSONShowsWhatATerminalWouldActOn(t *testing.T) {
	const text = "a\u009b31m\u202eb\u200bc é 界 😀 \U000e0001"
	body, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	got := visible(body)
	if want := `"a\u009b31m\u202eb\u200bc é 界 😀 \udb40\udc01"`; string(got) != want {
		t.Errorf("visible = %s, want %s", got, want)
	}
	var back string
	if err := json.Unmarshal(got, &back); err != nil || back != text {
		t.Errorf("reads back as %q, %v", back, err)
	}
}
