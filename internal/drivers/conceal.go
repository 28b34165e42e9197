package drivers

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"
)

// A concealedError has the text of its cause without the password. What kind of error it
// is can still be asked.
type concealedError struct {
	text  string
	cause error
}

// Error implements error.
func (e *concealedError) Error() string { return e.text }

// Is implements what [errors.Is] asks for.
func (e *concealedError) Is(target error) bool { return errors.Is(e.cause, target) }

// As implements what [errors.As] asks for.
func (e *concealedError) As(target any) bool { return errors.As(e.cause, target) }

// minMasked is the least length of a password that is masked inside a text, in characters.
const minMasked = 4

// conceal returns err without the password, should the server or the driver quote it. A
// password that is short, or part of a word, would be given away by the letters that the
// mask takes out: then nothing is left of the text.
func conceal(err error, password string) error {
	text := err.Error()
	if password == "" || !strings.Contains(text, password) {
		return err
	}
	masked := strings.ReplaceAll(text, password, "***")
	if utf8.RuneCountInString(password) < minMasked || !standsAlone(text, password) {
		masked = "the words of the failure are not shown, as the password may be among them"
		var answer *mysql.MySQLError
		if errors.As(err, &answer) {
			masked = fmt.Sprintf("error %d of the server: its words are not shown, as the password may be among them", answer.Number)
		}
	}
	return &concealedError{masked, err}
}

// standsAlone reports whether a word is no part of a longer one anywhere in text.
func standsAlone(text, word string) bool {
	ofWord := func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	for {
		before, after, found := strings.Cut(text, word)
		if !found {
			return true
		}
		last, _ := utf8.DecodeLastRuneInString(before)
		first, _ := utf8.DecodeRuneInString(after)
		if ofWord(last) || ofWord(first) {
			return false
		}
		text = after
	}
}
