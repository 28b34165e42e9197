package drivers

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// A mask inside a word, or for a few letters, would give away what it hides.
func TestAPasswordIsMaskedOnlyWhereTheMaskTellsNothing(t *testing.T) {
	refused := &mysql.MySQLError{Number: 1226, Message: "User 'relay' has exceeded the resource"}
	for password, want := range map[string]string{
		"":         refused.Error(),
		"absent":   refused.Error(),
		"relay":    strings.ReplaceAll(refused.Error(), "relay", "***"),
		"x":        "error 1226 of the server: its words are not shown, as the password may be among them",
		"has":      "error 1226 of the server: its words are not shown, as the password may be among them",
		"exceed":   "error 1226 of the server: its words are not shown, as the password may be among them",
		"resource": strings.ReplaceAll(refused.Error(), "resource", "***"),
	} {
		err := conceal(refused, password)
		var number *mysql.MySQLError
		if err.Error() != want || !errors.As(err, &number) {
			t.Errorf("password %q: %q, want %q", password, err, want)
		}
	}
	if err := conceal(errors.New("dial tcp: timeout"), "tcp"); strings.Contains(err.Error(), "dial") {
		t.Errorf("a failure without a number is %q", err)
	}
}
